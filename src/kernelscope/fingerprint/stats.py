"""The statistics of a tensor. Plain data: reading a run needs no torch."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

# One row of a log, float64 each, as every engine writes it. The first four are NaN when nothing is finite.
ROW = ("min", "max", "mean", "std", "l1", "nan", "pos_inf", "neg_inf", "zeros")
ROW_LENGTH = len(ROW)
NO_NUMBERS = -1  # stands for the number of elements where the dtype has no statistics
StatsRow: TypeAlias = tuple[Sequence[float], int]  # as an engine leaves them, and the number of elements


class StatsRows(Sequence[StatsRow]):
    """Many of them, as they lie in memory."""

    def __init__(self, values: array[float], numels: array[int]) -> None:
        self.values, self.numels = values, numels

    def __len__(self) -> int:
        return len(self.numels)

    @overload
    def __getitem__(self, which: int) -> StatsRow: ...
    @overload
    def __getitem__(self, which: slice) -> StatsRows: ...
    def __getitem__(self, which: int | slice) -> StatsRow | StatsRows:
        if isinstance(which, slice):
            start, stop, _ = which.indices(len(self))
            return StatsRows(self.values[start * ROW_LENGTH : stop * ROW_LENGTH], self.numels[start:stop])
        return self.values[which * ROW_LENGTH : (which + 1) * ROW_LENGTH].tolist(), self.numels[which]


# Dtypes whose bytes mean no number by themselves.
NUMBERLESS = frozenset(
    [
        "float4_e2m1fn_x2",
        *("bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
        *(f"{sign}int{n}" for sign in ("", "u") for n in range(1, 8)),
    ]
)


@dataclass(frozen=True, slots=True)
class Stats:
    """One tensor's numbers: `min` to `l1` are over the finite elements, the counts over all.

    Of complex numbers they are those of the absolute values. `min`, `max`, `mean` and `std` are None when no
    element is finite.
    """

    numel: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None  # of these elements, not an estimate for others: divided by their number
    l1: float
    nan: int
    pos_inf: int
    neg_inf: int
    zeros: int

    @classmethod
    def from_row(cls, row: Sequence[float], numel: int) -> Stats:
        low, high, mean, std, l1, *counts = row
        nan, pos_inf, neg_inf, zeros = map(int, counts)
        if numel == nan + pos_inf + neg_inf:
            return cls(numel, None, None, None, None, l1, nan, pos_inf, neg_inf, zeros)
        return cls(numel, low, high, mean, std, l1, nan, pos_inf, neg_inf, zeros)

    @property
    def finite(self) -> int:
        """How many elements are finite."""
        return self.numel - self.nan - self.pos_inf - self.neg_inf

    @property
    def norm(self) -> float:
        """The sum of the absolute values of all elements: one NaN makes it NaN, one infinity infinite."""
        if self.nan:
            return math.nan
        return math.inf if self.pos_inf or self.neg_inf else self.l1

    def __str__(self) -> str:
        if self.min is None or self.max is None or self.mean is None or self.std is None:
            shown = "empty" if not self.numel else "nothing finite"
        else:
            shown = f"{self.min:.4g}…{self.max:.4g} mean {self.mean:.4g} std {self.std:.4g}"
        counts = {"nan": self.nan, "+inf": self.pos_inf, "-inf": self.neg_inf, "zeros": self.zeros}
        return shown + "".join(f" {name} {count}" for name, count in counts.items() if count)
