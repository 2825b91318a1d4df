"""Finds buffers that changed without a declared write.

A buffer is digested when its writer is done, and again before it is read. After each launch a sample of
everything that is alive is digested too, so that the writer can be named at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from kernelscope.shadowing.reference.places import Place, overlap, place_of

from .digests import digests

_SAMPLE_ABOVE = 1 << 14  # elements
_BLOCK, _EVERY = 64, 4096


@dataclass(slots=True)
class Mark:
    """What a variable held when it was last digested."""

    storage: int
    whole: int
    sample: int
    launch: int  # after which one


@dataclass(frozen=True, slots=True)
class Change:
    """A variable no longer holds what its writer left there."""

    name: str
    since: int  # the launch after which it was still right
    is_seen: bool  # right after the launch that changed it


@dataclass(slots=True)
class Watch:
    """The variables of one graph call."""

    marks: dict[str, Mark] = field(default_factory=dict)

    def before(self, alive: Mapping[str, torch.Tensor], reads: Collection[str], launch: int) -> list[Change]:
        """Begin to watch those that are not watched yet; which of those that are read have changed?"""
        new = {name: t for name, t in alive.items() if name not in self.marks and _is_readable(t)}
        known = {
            name: alive[name]
            for name in reads
            if name not in new and name in self.marks and self.marks[name].storage == _storage(alive[name])
        }
        marks = _marks({**new, **known}, launch - 1)
        self.marks |= {name: marks[name] for name in new}
        changes = []
        for name in known:
            before = self.marks[name]
            if marks[name].whole != before.whole:
                changes.append(Change(name, before.launch, is_seen=False))
                self.marks[name] = marks[name]
            else:
                before.launch = launch - 1
        return changes

    def after(
        self, alive: Mapping[str, torch.Tensor], written: Iterable[torch.Tensor], launch: int
    ) -> list[Change]:
        """Which of those changed that this launch does not write to."""
        places: dict[int, list[Place | None]] = {}  # by storage: in one memory there may be many buffers
        for each in written:
            places.setdefault(_storage(each), []).append(place_of(each))
        own: dict[str, torch.Tensor] = {}
        others: dict[str, torch.Tensor] = {}
        for name in list(self.marks):
            tensor = alive.get(name)
            if tensor is None or _storage(tensor) != self.marks[name].storage:
                del self.marks[name]
            elif _may_change(tensor, places.get(self.marks[name].storage, ())):
                own[name] = tensor
            else:
                others[name] = tensor
        new, samples = _marks_and_samples(own, others, launch)
        self.marks |= new
        changed = {name: t for name, t in others.items() if samples[name] != self.marks[name].sample}
        changes = [Change(name, self.marks[name].launch, is_seen=True) for name in changed]
        self.marks |= _marks(changed, launch)
        return changes


def _may_change(tensor: torch.Tensor, written: Collection[Place | None]) -> bool:
    """Whether these places in its memory have elements of it."""
    place = place_of(tensor) if written else None
    return any(place is None or each is None or overlap(place, each) for each in written)


def _marks(tensors: Mapping[str, torch.Tensor], launch: int) -> dict[str, Mark]:
    return _marks_and_samples(tensors, {}, launch)[0]


def _marks_and_samples(
    whole: Mapping[str, torch.Tensor], sampled: Mapping[str, torch.Tensor], launch: int
) -> tuple[dict[str, Mark], dict[str, int]]:
    """Marks of some variables and samples of others, all digested at once: on a GPU the host waits once."""
    laid_out = {name: _in_memory_order(tensor) for name, tensor in whole.items()}
    samples = {name: _sample(tensor) for name, tensor in laid_out.items()}
    others = [_sample(_in_memory_order(tensor)) for tensor in sampled.values()]
    large = [name for name, tensor in laid_out.items() if samples[name] is not tensor]
    found = iter(digests([*laid_out.values(), *(samples[name] for name in large), *others]))
    wholes = {name: next(found) for name in laid_out}
    parts = wholes | {name: next(found) for name in large}
    marks = {name: Mark(_storage(t), wholes[name], parts[name], launch) for name, t in whole.items()}
    return marks, dict(zip(sampled, found, strict=True))


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, those that are neighbours in memory last: a transposed matrix as it lies."""
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda i: strides[i], reverse=True)
    return tensor if order == list(range(tensor.dim())) else tensor.permute(order)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() <= _SAMPLE_ABOVE or not tensor.is_contiguous():
        return tensor
    blocks = tensor.numel() // _EVERY
    return tensor.as_strided((blocks, _BLOCK), (_EVERY, 1), tensor.storage_offset())


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_readable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0
