"""Finds buffers that changed without a declared write.

A buffer is digested when its writer is done, and again before it is read. After each launch a sample of
everything that is alive is digested too, so that the writer can be named at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from kernelscope.fingerprint.cpu import bits as cpu_bits
from kernelscope.fingerprint.definition import MASK64
from kernelscope.fingerprint.torch_bits import sum_into

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

    def look_at(self, alive: Mapping[str, torch.Tensor], launch: int) -> None:
        """Begin to watch those that are not watched yet."""
        for name, tensor in alive.items():
            if name not in self.marks and _is_readable(tensor):
                self.marks[name] = _mark(tensor, launch)

    def before(self, reads: Mapping[str, torch.Tensor], launch: int) -> list[Change]:
        """Which of these changed since they were written."""
        changes = []
        for name, tensor in reads.items():
            known = self.marks.get(name)
            if known is None or known.storage != _storage(tensor):
                continue
            if digest(tensor) != known.whole:
                changes.append(Change(name, known.launch, is_seen=False))
                self.marks[name] = _mark(tensor, launch - 1)
            else:
                known.launch = launch - 1
        return changes

    def after(
        self, alive: Mapping[str, torch.Tensor], written: Iterable[torch.Tensor], launch: int
    ) -> list[Change]:
        """Which of those changed that this launch does not write to."""
        storages = {_storage(tensor) for tensor in written}
        changes = []
        for name in list(self.marks):
            tensor = alive.get(name)
            known = self.marks[name]
            if tensor is None or _storage(tensor) != known.storage:
                del self.marks[name]
            elif known.storage in storages:
                self.marks[name] = _mark(tensor, launch)
            elif _sampled(tensor) != known.sample:
                changes.append(Change(name, known.launch, is_seen=True))
                self.marks[name] = _mark(tensor, launch)
        return changes


def digest(tensor: torch.Tensor) -> int:
    """A number that changes with any bit of it."""
    found = cpu_bits.accumulate(tensor) if tensor.device.type == "cpu" else None
    if found is not None:
        return found
    total = torch.empty(1, dtype=torch.int64, device=tensor.device)
    sum_into(tensor, total)
    return int(total) & MASK64


def _sampled(tensor: torch.Tensor) -> int:
    if tensor.numel() <= _SAMPLE_ABOVE or not tensor.is_contiguous():
        return digest(tensor)
    blocks = tensor.numel() // _EVERY
    return digest(tensor.as_strided((blocks, _BLOCK), (_EVERY, 1), tensor.storage_offset()))


def _mark(tensor: torch.Tensor, launch: int) -> Mark:
    whole = digest(tensor)
    is_small = tensor.numel() <= _SAMPLE_ABOVE or not tensor.is_contiguous()
    return Mark(_storage(tensor), whole, whole if is_small else _sampled(tensor), launch)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_readable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0
