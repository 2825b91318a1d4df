"""The straightforward engine for level "stats": plain torch operations, on any device, without a sync.

Sums are taken by adding halves onto each other, because torch's reductions depend on the number of threads.
The caller has switched off autograd and every mode (see `torch_bits.quiet`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from . import torch_bits as hashes
from .stats import NO_NUMBERS, NUMBERLESS

# Of one piece; a power of two. Half a dozen float64 buffers of that size are held at a time.
PIECE = 1 << 17

_INF = float("inf")


def has_numbers(dtype: torch.dtype) -> bool:
    return hashes.DTYPE_NAMES[dtype] not in NUMBERLESS


def stats_into(tensor: torch.Tensor, out: torch.Tensor) -> None:
    """Write the row of `stats.ROW` into the float64 `out` on the same device."""
    total: _Totals | None = None
    for numbers in _pieces(tensor):
        piece = _sum_up(numbers)
        total = piece if total is None else total.merged(piece)
    if total is None:
        out.zero_()
        out[:4].fill_(float("nan"))
        return
    nothing = total.finite == 0
    std = (total.squares / total.finite).sqrt_()
    for place, value in enumerate((total.low, total.high, total.mean, std)):
        out[place].copy_(value.masked_fill_(nothing, float("nan")))
    out[4].copy_(total.l1)
    out[5:].copy_(total.counts)


@dataclass(frozen=True, slots=True)
class _Totals:
    """0-d float64 tensors on the device; the counts of NaN, +inf, -inf and zeros are one tensor of four."""

    finite: torch.Tensor
    mean: torch.Tensor
    squares: torch.Tensor  # summed distances from the mean, squared
    l1: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    counts: torch.Tensor

    def merged(self, other: _Totals) -> _Totals:
        finite = self.finite + other.finite
        share = (other.finite / finite).nan_to_num_(0.0)
        apart = other.mean - self.mean
        return _Totals(
            finite,
            self.mean + apart * share,
            self.squares + other.squares + apart * apart * (self.finite * share),
            self.l1 + other.l1,
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            self.counts + other.counts,
        )


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements as float64, absolute values of complex ones, at most PIECE at a time."""
    exact = torch.complex128 if tensor.is_complex() else torch.float64
    staging = torch.empty(min(tensor.numel(), PIECE), dtype=exact, device=tensor.device)
    for start in range(0, tensor.numel(), PIECE):
        piece = staging[: min(PIECE, tensor.numel() - start)]
        hashes.gather(tensor, start, piece)
        yield _sizes(piece) if tensor.is_complex() else piece


def _sizes(numbers: torch.Tensor) -> torch.Tensor:
    parts = torch.view_as_real(numbers)
    either = parts.isnan().any(-1)  # abs() of infinity and NaN is infinite
    return numbers.abs().masked_fill_(either, float("nan"))


def _sum_up(x: torch.Tensor) -> _Totals:
    size = x.abs()
    wild = ~(size < _INF)
    count = x.numel()
    counts = torch.stack([x.isnan().sum(), (x == _INF).sum(), (x == -_INF).sum(), (x == 0).sum()])
    finite = (count - wild.sum()).double()
    low, high = x.masked_fill(wild, _INF).min(), x.masked_fill(wild, -_INF).max()
    # Around an element of its own, so that a constant far from zero has no deviation.
    around = torch.where(finite == 0, 0.0, low)
    away = (x - around).masked_fill_(wild, 0.0)
    shift = (_folded(away) / finite).nan_to_num_(0.0, posinf=_INF, neginf=-_INF)
    away = away.sub_(shift).masked_fill_(wild, 0.0)
    return _Totals(
        finite,
        around + shift,
        _folded(away.square_()),
        _folded(size.masked_fill_(wild, 0.0)),
        low,
        high,
        counts.double(),
    )


def _folded(x: torch.Tensor) -> torch.Tensor:
    """The sum, in an order that nothing but the length decides."""
    while (count := x.numel()) > 1:
        half = (count + 1) // 2
        folded = x[:half].clone()
        folded[: count - half] += x[half:]
        x = folded
    return x[0]


def numel(tensor: torch.Tensor) -> int:
    """How many numbers there are statistics of, as a row of the log says it."""
    return tensor.numel() if has_numbers(tensor.dtype) else NO_NUMBERS
