"""Which calls of an eager run draw numbers that nothing depends on: the compiler leaves these calls out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.regions.copies import consist_of_others
from kernelscope.shadowing.regions.modes.operator_modes import (
    declares_writes,
    is_traced,
    tensors_in,
    writes,
)


def may_draw(func: Any) -> bool:
    """These calls are numbered, in the order of an eager run."""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


class DrawingCalls(ThreadMode):
    """Numbers them; a subclass asks at each whether it is one of those that are left out."""

    def __init__(self, unused: frozenset[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls, self._unused, self._is_inside = 0, unused, False

    def is_unused(self) -> bool:
        if self._is_inside:
            return False
        self._calls += 1
        return self._calls - 1 in self._unused

    @contextmanager
    def taking_apart(self) -> Iterator[None]:
        """The calls of which an operator consists have no numbers of their own."""
        outer, self._is_inside = self._is_inside, True
        try:
            with self:
                yield
        finally:
            self._is_inside = outer


class UnusedDraws(ThreadMode):
    """Follows what is drawn through each operator, from memory to memory."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = 0
        # By storage: the calls whose numbers it may depend on. A weak reference keeps its address from reuse.
        self._behind: dict[int, tuple[StorageWeakRef, set[int]]] = {}
        self._used: set[int] = set()  # as numbers or sizes, which cannot be followed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if consist_of_others(types):
            return NotImplemented
        made = func(*args, **kwargs)
        if is_traced(types, args, kwargs):
            return made
        behind = self._behind_all(tensors_in((args, kwargs)))
        if may_draw(func):
            behind.add(self._calls)
            self._calls += 1
        if behind:
            self._note(behind, [*tensors_in(made), *_written(func, args, kwargs)])
            is_number = any(not isinstance(part, torch.Tensor) for part in tree_leaves(made))
            if is_number or torch.Tag.dynamic_output_shape in getattr(func, "tags", ()):
                self._used |= behind
        return made

    def unused(self, values: Any) -> frozenset[int]:
        """By number of the call; `values` is all that the run leaves."""
        used = self._used | self._behind_all(tensors_in(values))
        return frozenset(range(self._calls)) - used

    def _note(self, behind: set[int], tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.layout is not torch.strided:
                self._used |= behind
                continue
            storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            self._behind.setdefault(storage.cdata, (storage, set()))[1].update(behind)

    def _behind_all(self, tensors: Iterator[torch.Tensor]) -> set[int]:
        found: set[int] = set()
        for tensor in tensors:
            if tensor.layout is torch.strided:
                known = self._behind.get(tensor.untyped_storage()._cdata)
                found |= known[1] if known is not None else set()
        return found


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    if not declares_writes(func):
        yield from tensors_in((args, kwargs)) if writes(func) else ()
        return
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(args[place] if place < len(args) else kwargs.get(argument.name))
