"""Finds buffers that changed without a declared write, and names the launch that changed them.

A buffer is digested when its writer is done, and again before it is read. After each launch a sample of
everything that is alive is digested too, so that the writer can be named at once.

The first execution of a graph is watched like this. `planned_writes` watches the later ones.
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
    suspects: range  # the launches while which it changed
    is_read: bool  # found before it is read; else after the last of these launches


@dataclass(slots=True)
class Watch:
    """The variables of one graph call."""

    marks: dict[str, Mark] = field(default_factory=dict)
    is_clean: bool = True
    # By launch: those that the next one writes to, or that are gone by then.
    endings: list[set[str]] = field(default_factory=list)

    def before(self, alive: Mapping[str, torch.Tensor], reads: Collection[str], launch: int) -> list[Change]:
        """Begin to watch those that are not watched yet; which of those that are read have changed?"""
        new = {name: t for name, t in alive.items() if name not in self.marks and is_readable(t)}
        known = {
            name: alive[name]
            for name in reads
            if name not in new and name in self.marks and self.marks[name].storage == storage_of(alive[name])
        }
        marks = _marks({**new, **known}, launch - 1)
        self.marks |= {name: marks[name] for name in new}
        changes = []
        for name in known:
            before = self.marks[name]
            if marks[name].whole != before.whole:
                changes.append(Change(name, range(before.launch + 1, launch), is_read=True))
                self.marks[name] = marks[name]
            else:
                before.launch = launch - 1
        self.is_clean &= not changes
        return changes

    def after(
        self, alive: Mapping[str, torch.Tensor], written: Iterable[torch.Tensor], launch: int
    ) -> list[Change]:
        """Which of those changed that this launch does not write to."""
        places = places_in(written)
        own: dict[str, torch.Tensor] = {}
        others: dict[str, torch.Tensor] = {}
        ended = set[str]()
        for name in list(self.marks):
            tensor = alive.get(name)
            if tensor is None or storage_of(tensor) != self.marks[name].storage:
                ended.add(name)
                del self.marks[name]
            elif may_change(tensor, places.get(self.marks[name].storage, ())):
                ended.add(name)
                own[name] = tensor
            else:
                others[name] = tensor
        if self.endings:
            self.endings[-1] |= ended
        self.endings.append(set())
        new, samples = _marks_and_samples(own, others, launch)
        self.marks |= new
        changed = {name: t for name, t in others.items() if samples[name] != self.marks[name].sample}
        changes = [Change(name, range(launch, launch + 1), is_read=False) for name in changed]
        self.marks |= _marks(changed, launch)
        self.is_clean &= not changes
        return changes


def places_in(written: Iterable[torch.Tensor]) -> dict[int, list[Place | None]]:
    """By storage, because in one memory there may be many buffers."""
    found: dict[int, list[Place | None]] = {}
    for each in written:
        found.setdefault(storage_of(each), []).append(place_of(each))
    return found


def may_change(tensor: torch.Tensor, written: Collection[Place | None]) -> bool:
    """Whether these places in its memory have elements of it."""
    place = place_of(tensor) if written else None
    return any(place is None or each is None or overlap(place, each) for each in written)


def _marks(tensors: Mapping[str, torch.Tensor], launch: int) -> dict[str, Mark]:
    return _marks_and_samples(tensors, {}, launch)[0]


def _marks_and_samples(
    whole: Mapping[str, torch.Tensor], sampled: Mapping[str, torch.Tensor], launch: int
) -> tuple[dict[str, Mark], dict[str, int]]:
    """Marks of some variables and samples of others, all digested at once: on a GPU the host waits once."""
    laid_out = {name: in_memory_order(tensor) for name, tensor in whole.items()}
    samples = {name: _sample(tensor) for name, tensor in laid_out.items()}
    others = [_sample(in_memory_order(tensor)) for tensor in sampled.values()]
    large = [name for name, tensor in laid_out.items() if samples[name] is not tensor]
    found = iter(digests([*laid_out.values(), *(samples[name] for name in large), *others]))
    wholes = {name: next(found) for name in laid_out}
    parts = wholes | {name: next(found) for name in large}
    marks = {name: Mark(storage_of(t), wholes[name], parts[name], launch) for name, t in whole.items()}
    return marks, dict(zip(sampled, found, strict=True))


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
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


def storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def is_readable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0
