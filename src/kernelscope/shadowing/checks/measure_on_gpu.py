"""How far a kernel's result is from eager and from float64, in one pass on a GPU; imported only there.

Each program leaves a row of twelve numbers, in the order of `Sums`; they are merged on the GPU too.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 512
_BLOCKS_A_PROGRAM, _PROGRAMS_AT_MOST = 4, 132 * 8
_ROW = 12
_LARGEST = tl.constexpr(1.7976931348623157e308)  # of float64


@triton.jit  # type: ignore[untyped-decorator]
def measure(c, e, r, rows, count, LIMIT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of c, e and r, beside each other in memory; LIMIT is the largest number of the result's dtype."""
    zero = tl.zeros([BLOCK], tl.float64)
    considered, worst, eager_worst, largest = zero, zero, zero, zero
    squares, eager_squares, wide_squares, along, eager_along = zero, zero, zero, zero, zero
    bad = zero
    none = tl.full([BLOCK], -1, tl.int64)
    where, where_bad = none, none
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, count, step):
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        x = tl.load(c + at, inside, other=0).to(tl.float64)
        y = tl.load(e + at, inside, other=0).to(tl.float64)
        z = tl.load(r + at, inside, other=0).to(tl.float64)
        is_finite = tl.abs(x) <= _LARGEST
        is_eager_finite = tl.abs(y) <= _LARGEST
        both = is_eager_finite & (tl.abs(z) <= LIMIT)
        # Where one of them is not finite: the value has to be of the kind of one of them.
        is_overflow = (tl.abs(z) > LIMIT) & (tl.abs(x) > _LARGEST) & ((x > 0) == (z > 0))
        like_eager = tl.where(y != y, x != x, tl.where(is_eager_finite, is_finite, x == y))
        like_wide = tl.where(z != z, x != x, is_overflow)
        is_bad = inside & tl.where(both, ~is_finite, ~(like_eager | like_wide))
        good = inside & both & is_finite
        dx, dy, z = tl.where(good, x - z, 0.0), tl.where(good, y - z, 0.0), tl.where(good, z, 0.0)
        considered += good.to(tl.float64)
        where = tl.where(tl.abs(dx) > worst, at, where)
        worst = tl.maximum(worst, tl.abs(dx))
        eager_worst = tl.maximum(eager_worst, tl.abs(dy))
        largest = tl.maximum(largest, tl.abs(z))
        squares += dx * dx
        eager_squares += dy * dy
        wide_squares += z * z
        along += dx * z
        eager_along += dy * z
        where_bad = tl.where(is_bad & (where_bad < 0), at, where_bad)
        bad += is_bad.to(tl.float64)
    row = rows + tl.program_id(0) * 12
    most = tl.max(worst, 0)
    far = tl.full([BLOCK], 0x7FFFFFFFFFFFFFFF, tl.int64)
    tl.store(row, tl.sum(considered, 0))
    tl.store(row + 1, most)
    tl.store(row + 2, tl.min(tl.where((worst == most) & (where >= 0), where, far), 0).to(tl.float64))
    tl.store(row + 3, tl.max(eager_worst, 0))
    tl.store(row + 4, tl.max(largest, 0))
    tl.store(row + 5, tl.sum(squares, 0))
    tl.store(row + 6, tl.sum(eager_squares, 0))
    tl.store(row + 7, tl.sum(wide_squares, 0))
    tl.store(row + 8, tl.sum(along, 0))
    tl.store(row + 9, tl.sum(eager_along, 0))
    tl.store(row + 10, tl.sum(bad, 0))
    tl.store(row + 11, tl.min(tl.where(where_bad >= 0, where_bad, far), 0).to(tl.float64))


def numbers(made: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor) -> list[float]:
    """The twelve numbers of `Sums`, of three contiguous tensors; the host waits for them."""
    count, limit = made.numel(), float(torch.finfo(made.dtype).max)
    programs = max(1, min(-(-count // (BLOCK * _BLOCKS_A_PROGRAM)), _PROGRAMS_AT_MOST))
    rows = torch.empty((programs, _ROW), dtype=torch.float64, device=made.device)
    launch: Any = measure[(programs,)]
    if made.is_cuda:
        with torch.cuda.device(made.device):
            launch(made, eager, wide, rows, count, limit, BLOCK)
    else:
        launch(made, eager, wide, rows, count, limit, BLOCK)
    return _merged(rows)


def _merged(rows: torch.Tensor) -> list[float]:
    """Where the rows are: reductions by many threads of a CPU take longer than all the rest."""
    highest = rows.amax(0)
    at_worst = torch.where(rows[:, 1] == highest[1], rows[:, 2], math.inf)
    numbers = torch.cat((rows.sum(0), highest, rows.amin(0), at_worst.amin(0, keepdim=True))).tolist()
    sums, most, least = (numbers[i * _ROW : (i + 1) * _ROW] for i in range(3))
    found: list[float] = [most[i] if i in (1, 3, 4) else sums[i] for i in range(_ROW)]
    found[2] = numbers[-1] if most[1] else -1.0
    found[11] = least[11] if found[10] else -1.0
    return found
