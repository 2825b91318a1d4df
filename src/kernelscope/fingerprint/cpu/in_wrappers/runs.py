"""The memory of a strided tensor as runs without gaps, whatever the order of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Level = tuple[int, int]  # how often, and how many bytes apart


class Runs(NamedTuple):
    """Runs of so many bytes, at the offsets that the levels around them give; the innermost level is last."""

    nbytes: int  # of one run
    levels: tuple[Level, ...]

    @property
    def extent(self) -> int:
        """Bytes from the first one to the end of the last run."""
        return self.nbytes + sum((count - 1) * step for count, step in self.levels) if self.nbytes else 0


def runs_of(shape: Sequence[int], stride: Sequence[int], itemsize: int) -> Runs:
    """Every byte of the tensor lies in a run; what is repeated by a stride of 0 is there once."""
    if 0 in shape:
        return Runs(0, ())
    nbytes = itemsize
    levels: list[Level] = []
    for step, count in sorted((s, n) for s, n in zip(stride, shape, strict=True) if n != 1 and s):
        if not levels and step * itemsize == nbytes:
            nbytes *= count
        else:
            levels.append((count, step * itemsize))
    return Runs(nbytes, tuple(reversed(levels)))
