"""Where in memory a value lies: what is written through one view is read back through the same view.

A wrapper gives memory a new name, shape and dtype whenever it pleases (`buf1 = reinterpret_tensor(buf0, …)`).
A kernel that is given `buf1` then still finds what was written to `buf0`, element by element where that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.bus import BUS

from .graph_walk import concrete_sizes


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of one memory, as a tensor lies over them."""

    memory: int  # the number of the storage
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    is_conj: bool = False
    is_neg: bool = False

    def view(self, other: torch.Tensor) -> torch.Tensor:
        """The elements here; `other` is any tensor in the same memory."""
        empty = torch.empty(0, dtype=self.dtype, device=other.device)
        found = empty.set_(other.untyped_storage(), self.offset, self.shape, self.stride)
        found = found.conj() if self.is_conj else found
        return torch.ops.aten._neg_view.default(found) if self.is_neg else found

    def laid_out_as(self, fake: torch.Tensor, symbols: Mapping[str, Any]) -> Place:
        """Where a tensor of this layout lies that begins here."""
        shape, stride = (concrete_sizes(sizes, symbols) for sizes in (fake.shape, fake.stride()))
        offset = self.offset * self.dtype.itemsize // fake.dtype.itemsize
        return Place(self.memory, fake.dtype, shape, stride, offset)

    def dimensions(self) -> list[tuple[int, int]]:
        """Step and count of each dimension, in bytes; an expanded one has no step."""
        size = self.dtype.itemsize
        steps = [(step * size, n) for step, n in zip(self.stride, self.shape, strict=True) if n != 1 and step]
        return [*steps, *([(1, size)] if size > 1 else ())]

    def is_dense(self) -> bool:
        """Whether its elements fill all bytes from its first to its last."""
        filled = 1
        for step, count in sorted(self.dimensions()):
            if step != filled:
                return False
            filled *= count
        return True

    def span(self) -> tuple[int, int]:
        """The first of its bytes, and the one behind its last."""
        start = self.offset * self.dtype.itemsize
        return start, start + 1 + sum(step * (n - 1) for step, n in self.dimensions())


def place_of(tensor: Any) -> Place | None:
    """None: this has no memory that could be looked at in another way (a sparse tensor, lazy zeros)."""
    if not _has_place(tensor):
        return None
    shape, stride, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    flags = tensor.is_conj(), tensor.is_neg()
    return Place(BUS.storages.of(tensor).id, tensor.dtype, shape, stride, offset, *flags)


def _has_place(tensor: Any) -> bool:
    is_strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return is_strided and not tensor._is_zerotensor()


def overlap(a: Place, b: Place) -> bool:
    """Whether a write to one changes the other; in doubt it does."""
    if a.memory != b.memory or 0 in a.shape or 0 in b.shape:
        return False
    if a == b:
        return True
    (start, end), (first, last) = a.span(), b.span()
    if end <= first or last <= start:
        return False
    if a.is_dense() and b.is_dense():
        return True
    steps = sorted({1, *(step for each in (a, b) for step, _ in each.dimensions())}, reverse=True)
    ranges, others = _ranges(a, start, steps), _ranges(b, first, steps)
    if ranges is None or others is None:
        return True
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(ranges, others, strict=True))


def _ranges(place: Place, start: int, steps: Sequence[int]) -> list[tuple[int, int]] | None:
    """Its first and last index along each of these steps; None: it does not lie along them."""
    counts: dict[int, int] = {}
    for step, count in place.dimensions():
        if step in counts:
            return None
        counts[step] = count
    found = []
    for step in steps:
        first, start = divmod(start, step)
        found.append((first, first + counts.get(step, 1) - 1))
    reach = 0
    for i in range(len(steps) - 1, 0, -1):
        reach += found[i][1] * steps[i]
        if reach >= steps[i - 1]:  # a row runs over into the next
            return None
    return found


class Memories:
    """The memory that can be reached at this moment: that of the wrapper's variables, and of the launch."""

    def __init__(self, alive: Mapping[str, Any], arguments: Sequence[Any]) -> None:
        self._alive = alive
        self._arguments = arguments
        self._by_number: dict[int, torch.Tensor] | None = None

    def find(self, number: int) -> torch.Tensor | None:
        """A tensor that lies in this memory."""
        if self._by_number is None:
            tensors = (*self._arguments, *self._alive.values())
            self._by_number = {BUS.storages.of(each).id: each for each in tensors if _has_place(each)}
        return self._by_number.get(number)

    def named(self, name: str) -> torch.Tensor | None:
        found = self._alive.get(name)
        return found if isinstance(found, torch.Tensor) else None


@dataclass(frozen=True, slots=True)
class Held:
    """What was last written to a variable."""

    node: Node | None  # None: a part of a result, which is the value of no node
    place: Place | None


class Holdings:
    """Which node's value lies where, by the variable that it was written to; each launch changes it."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def __contains__(self, name: object) -> bool:
        return self.node(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name, held in self._held.items() if held.node is not None)

    def written(self) -> list[str]:
        """All variables, also those whose contents are the value of no node."""
        return list(self._held)

    def node(self, name: str) -> Node | None:
        held = self._held.get(name)
        return held.node if held is not None else None

    def items(self) -> Iterator[tuple[str, Node]]:
        return ((name, held.node) for name, held in self._held.items() if held.node is not None)

    def put(self, name: str, node: Node | None, place: Place | None) -> None:
        """The value of this node is there now."""
        self._held[name] = Held(node, place)

    def overwrite(self, place: Place) -> dict[str, Held]:
        """Something is written there: what was there before is gone, and returned."""
        memory = place.memory
        there = [(n, h.place) for n, h in self._held.items() if h.place and h.place.memory == memory]
        return {name: self._held.pop(name) for name, other in there if overlap(other, place)}

    def lying_in(self, name: str, tensor: Any) -> list[str]:
        """The variables whose values can be found in this tensor, which has this name now."""
        place = place_of(tensor)
        if place is None:
            return [name] if name in self._held else []
        return [
            each
            for each, held in self._held.items()
            if (
                held.place.memory == place.memory and overlap(held.place, place)
                if held.place is not None
                else each == name
            )
        ]

    def pieces_in(self, tensor: Any) -> list[str]:
        """The variables whose contents lie in this tensor and are the value of no node."""
        if place_of(tensor) is None:
            return []
        return [name for name in self.lying_in("", tensor) if self._held[name].node is None]

    def read(self, name: str, memories: Memories) -> torch.Tensor | None:
        """What was written to this variable; None: its memory can no longer be reached."""
        held = self._held.get(name)
        if held is None or held.place is None:
            return memories.named(name) if held is not None else None
        tensor = memories.named(name)
        if tensor is None or not _has_place(tensor) or BUS.storages.of(tensor).id != held.place.memory:
            tensor = memories.find(held.place.memory)
        if tensor is None or tensor.untyped_storage().nbytes() < held.place.span()[1]:
            return None
        return held.place.view(tensor)
