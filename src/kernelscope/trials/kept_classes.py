"""Classes of a script that is run again and again stay the same objects.

Dynamo guards on the type of what it is given. If each run of a script made its classes anew, all would be
compiled again in each, and after eight runs, at Dynamo's limit, nothing would be compiled any more.
"""

from __future__ import annotations

import builtins
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

_PLAIN = (FunctionType, property, staticmethod, classmethod, str, bytes, int, float, complex, type(None))
_Key = tuple[CodeType, int]


class KeptClasses:
    """What the class statements of one namespace made in its first run is what they make in the next."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._kept: dict[_Key, tuple[type, dict[str, Any]]] = {}  # and what was in it
        self._seen: dict[CodeType, int] = {}  # in this run: one statement may be executed twice

    @contextmanager
    def kept(self) -> Iterator[None]:
        """During one run."""
        self._seen.clear()
        original = builtins.__build_class__
        builtins.__build_class__ = self._around(original)
        try:
            yield
        finally:
            builtins.__build_class__ = original

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def build(body: FunctionType, name: str, *bases: Any, **options: Any) -> Any:
            if body.__globals__ is not self._names or body.__closure__ or options:
                return original(body, name, *bases, **options)
            number = self._seen[body.__code__] = self._seen.get(body.__code__, 0) + 1
            found, contents = self._kept.get((body.__code__, number), (None, {}))
            if found is not None and found.__bases__ == (bases or (object,)):
                _put_back(found, contents)
                return found
            made = original(body, name, *bases)
            if type(made) in (type, ABCMeta) and _is_plain(made):
                self._kept[body.__code__, number] = made, dict(vars(made))
            return made

        return build


def _is_plain(made: type) -> bool:
    """Whether nothing in it can change but by being replaced."""
    return all(isinstance(v, _PLAIN) for k, v in vars(made).items() if k not in _OF_EVERY_CLASS)


_OF_EVERY_CLASS = ("__dict__", "__weakref__", "__annotations__", "__abstractmethods__", "_abc_impl")


def _put_back(kept: type, contents: Mapping[str, Any]) -> None:
    for name in [name for name in vars(kept) if name not in contents]:
        delattr(kept, name)
    for name, value in contents.items():
        if vars(kept).get(name) is not value:
            setattr(kept, name, value)
