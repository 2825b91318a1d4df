"""Modules and classes of a script that runs repeatedly stay the same objects.

The modules beside the script are executed again in each run, in the same module objects and with the same
code: Dynamo stores what it has compiled with a function's code, and in the names of its module. Dynamo also
guards on the types of its inputs. If each run created its classes again, each run would compile everything
again, and after eight runs, Dynamo's limit, nothing would be compiled any more.
"""

from __future__ import annotations

import builtins
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PLAIN = (FunctionType, property, staticmethod, classmethod, str, bytes, int, float, complex, type(None))
_Key = tuple[CodeType, int]


class KeptClasses:
    """Class statements of one namespace return the same objects in each run."""

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
    """Whether its contents can change only by being replaced."""
    return all(isinstance(v, _PLAIN) for k, v in vars(made).items() if k not in _OF_EVERY_CLASS)


_OF_EVERY_CLASS = ("__dict__", "__weakref__", "__annotations__", "__abstractmethods__", "_abc_impl")


def _put_back(kept: type, contents: Mapping[str, Any]) -> None:
    for name in [name for name in vars(kept) if name not in contents]:
        delattr(kept, name)
    for name, value in contents.items():
        if vars(kept).get(name) is not value:
            setattr(kept, name, value)


class KeptModules(MetaPathFinder):
    """Finds the modules whose files `is_own` accepts, and loads them into the same objects each time."""

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._kept: dict[str, _Loader] = {}
        # Packages that were loaded before the program: kernelscope and torch, wherever they are installed.
        self._libraries = {name.partition(".")[0] for name in sys.modules}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """During one run; afterwards they have to be imported again."""
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in self._kept:
                sys.modules.pop(name, None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._libraries:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if (
            found is None
            or type(found.loader) is not SourceFileLoader
            or not self._is_own(found.origin or "")
        ):
            return None
        loader = self._kept.get(fullname)
        if loader is None or loader.path != found.loader.path:
            loader = self._kept[fullname] = _Loader(fullname, found.loader.path)
        found.loader = loader
        return found


class _Loader(SourceFileLoader):
    """Of one module."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self._module: ModuleType | None = None
        self._code: CodeType | None = None
        self._classes: KeptClasses | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        names = vars(module)
        if self._code is None or self._classes is None:
            self._module, self._code = module, self.get_code(module.__name__)
            self._classes = KeptClasses(names)
        assert self._code is not None
        clear(names)
        with self._classes.kept():
            exec(self._code, names)


def clear(names: dict[str, Any]) -> None:
    """Keep Dynamo's own names, which compiled code needs: they begin with two underscores."""
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
