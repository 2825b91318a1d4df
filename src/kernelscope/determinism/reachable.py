"""What can be reached from a function and its arguments, and may be changed by calling it."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch

_MOST = 20_000  # objects that are looked into
_FOREIGN = {*sys.stdlib_module_names, "_pytest", "hypothesis", "numpy", "pytest", "torch", "triton"}


class Reachable:
    """Each thing once."""

    def __init__(self) -> None:
        self.modules: dict[int, torch.nn.Module] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        self.arrays: dict[int, Any] = {}  # numpy's
        self.generators: dict[int, torch.Generator] = {}
        self.stateful: dict[int, Any] = {}  # optimizers, schedulers, scalers: they have a state_dict()
        self.containers: dict[int, Any] = {}  # lists, dicts and sets
        self.objects: dict[int, Any] = {}  # with attributes
        self.cells: dict[int, CellType] = {}  # of closures
        self.globals: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}  # that a function assigns to
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that no id is used twice

    def look(self, start: Any) -> None:
        todo = [start]
        while todo and len(self._seen) < _MOST:
            value = todo.pop()
            if id(value) not in self._seen and not isinstance(value, int | float | str | bytes | type(None)):
                self._seen.add(id(value))
                self._kept.append(value)
                todo += self._note(value)

    def _note(self, value: Any) -> Iterator[Any]:
        """Notes what it is; what it holds is looked at next."""
        here = id(value)
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and not value.is_meta:
                self.tensors[here] = value
        elif isinstance(value, torch.nn.Module):
            for module in value.modules():
                self.modules.setdefault(id(module), module)
            yield from (*value.parameters(), *value.buffers(), getattr(value, "_orig_mod", None))
        elif isinstance(value, torch.Generator):
            self.generators[here] = value
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, MethodType):
            yield from (value.__self__, value.__func__)
        elif isinstance(value, functools.partial):
            yield from (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, dict | list | set):
            self.containers[here] = value
            yield from value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple | frozenset):
            yield from value
        elif _is_array(value):
            self.arrays[here] = value
        elif not isinstance(value, type | ModuleType):
            yield from self._object(value)

    def _object(self, value: Any) -> Iterator[Any]:
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            self.stateful[id(value)] = value
            yield from (group["params"] for group in getattr(value, "param_groups", ()))
        elif type(getattr(value, "__dict__", None)) is dict and _is_own(type(value)):
            self.objects[id(value)] = value
            yield from vars(value).values()

    def _function(self, value: FunctionType) -> Iterator[Any]:
        space = value.__globals__
        is_own = not _is_foreign(space.get("__name__", ""))
        for cell in filter(_is_filled, value.__closure__ or ()):
            if is_own:
                self.cells[id(cell)] = cell
            yield cell.cell_contents
        if is_own:
            for name in _assigned(value.__code__):
                self.globals[id(space), name] = space, name
            yield from (space[name] for name in _names(value.__code__) if name in space)
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
        yield getattr(value, "_torchdynamo_orig_callable", None)
        yield getattr(value, "__wrapped__", None)


def _is_foreign(module: str) -> bool:
    """A library's own state is not the program's."""
    return module.partition(".")[0] in _FOREIGN and module != "__main__"


def _is_own(kind: type) -> bool:
    return kind is SimpleNamespace or not _is_foreign(kind.__module__)


def _is_array(value: Any) -> bool:
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray"


def _codes(code: Any) -> Iterator[Any]:
    """A function's code, and that of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _codes(constant)


def _names(code: Any) -> Iterator[str]:
    return (name for each in _codes(code) for name in each.co_names)


def _assigned(code: Any) -> Iterator[str]:
    """Of globals."""
    return (
        str(step.argval)
        for each in _codes(code)
        for step in dis.get_instructions(each)
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    )


def _is_filled(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
