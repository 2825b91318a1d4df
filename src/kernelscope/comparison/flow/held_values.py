"""Which values the memory of a tensor holds: several weights may lie in one storage, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelscope.probes.bus import BUS


@dataclass(frozen=True, slots=True)
class _Held:
    """A value, from its first byte to its last."""

    start: int
    end: int
    number: int


class HeldValues:
    """By storage: values that were not overwritten."""

    def __init__(self) -> None:
        self._held: dict[int, list[_Held]] = {}

    def is_known(self, tensor: torch.Tensor) -> bool:
        return BUS.storages.of(tensor).id in self._held

    def of(self, tensor: torch.Tensor) -> list[int]:
        """In the bytes between its first element and its last."""
        start, end = _extent(tensor)
        held = self._held.get(BUS.storages.of(tensor).id, ())
        return [each.number for each in held if each.start < end and start < each.end]

    def of_memory(self, tensor: torch.Tensor) -> list[int]:
        """In all of its storage."""
        return [each.number for each in self._held.get(BUS.storages.of(tensor).id, ())]

    def set_memory(self, tensor: torch.Tensor, *numbers: int) -> None:
        """All of its storage is this value, or nothing that means something."""
        size = tensor.untyped_storage().nbytes()
        self._held[BUS.storages.of(tensor).id] = [_Held(0, size, number) for number in numbers]

    def write(self, tensor: torch.Tensor, number: int) -> tuple[int, ...]:
        """What it had, or a part of which it had, before."""
        storage, (start, end) = BUS.storages.of(tensor).id, _extent(tensor)
        held = self._held.get(storage, [])
        before = tuple(each.number for each in held if each.start < end and start < each.end)
        if tensor.numel() * tensor.element_size() >= end - start:  # without gaps
            held = [each for each in held if each.start < start or end < each.end]
        self._held[storage] = [*held, _Held(start, end, number)]
        return before


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    first = int(tensor.storage_offset())
    if not tensor.numel():
        return first * tensor.element_size(), first * tensor.element_size()
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    last = first + sum((int(size) - 1) * int(stride) for size, stride in steps)
    return first * tensor.element_size(), (last + 1) * tensor.element_size()
