"""Running sums of the CUDA kernels, and the records that their programs leave for the last one to merge.

Sums go around an element where a dtype is so fine that Σx² − (Σx)²/n would cancel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .cuda_numbers import count_of, is_fine, is_wide, number_in

_INF = tl.constexpr(float("inf"))
_NAN = tl.constexpr(float("nan"))
_MOST = tl.constexpr((1 << 31) - 1)

RECORD = 10  # float64 numbers of a record
_RECORD = tl.constexpr(RECORD)
COUNTERS = 8  # 64-bit words before the records
_COUNTERS = tl.constexpr(COUNTERS)
_MERGED_AT_ONCE = tl.constexpr(128)


# --- running sums ---


@triton.jit  # type: ignore[untyped-decorator]
def add_finite(  # type: ignore[no-untyped-def]
    word, other, around, total, squares, sizes, low, high, zeros, KIND: tl.constexpr
):  # fmt: skip
    """Words full of numbers that are finite, or else `sizes` becomes infinite or NaN."""
    for j in tl.static_range(count_of(KIND)):
        x = number_in(word, other, j, KIND, False)
        if KIND <= 3:
            total += x
            squares += x * x
            sizes += tl.abs(x)
        else:
            wide = x.to(tl.float64)
            away = wide - around if is_fine(KIND) else wide
            total += away
            squares += away * away
            sizes += tl.abs(wide)
        low = tl.minimum(low, x)
        high = tl.maximum(high, x)
        zeros += (x == 0).to(tl.int32)
    return total, squares, sizes, low, high, zeros


@triton.jit  # type: ignore[untyped-decorator]
def add_checked(  # type: ignore[no-untyped-def]
    word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg,
    KIND: tl.constexpr,
):  # fmt: skip
    """The first `valid` numbers of each word, whatever they are."""
    for j in tl.static_range(count_of(KIND)):
        x = number_in(word, other, j, KIND, True)
        here = valid > j
        if KIND <= 3:
            x = tl.where(here, x, 0)
            total += x
            squares += x * x
            sizes += tl.abs(x)
            low = tl.minimum(low, tl.where(here, x, _MOST))
            high = tl.maximum(high, tl.where(here, x, -_MOST))
            zeros += (here & (x == 0)).to(tl.int32)
        else:
            finite = here & (tl.abs(x) < _INF)
            nan += (here & (x != x)).to(tl.int32)
            pos += (here & (x == _INF)).to(tl.int32)
            neg += (here & (x == -_INF)).to(tl.int32)
            wide = x.to(tl.float64)
            away = tl.where(finite, wide - around if is_fine(KIND) else wide, 0.0)
            total += away
            squares += away * away
            sizes += tl.where(finite, tl.abs(wide), 0.0)
            low = tl.minimum(low, tl.where(finite, x, _INF))
            high = tl.maximum(high, tl.where(finite, x, -_INF))
            zeros += (here & (x == 0)).to(tl.int32)
    return total, squares, sizes, low, high, zeros, nan, pos, neg


@triton.jit  # type: ignore[untyped-decorator]
def middle(around, unseen, word, other, valid, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """What to sum up around, the largest of the first finite numbers seen; and whether none was seen yet."""
    if is_fine(KIND):  # noqa: SIM102  # known to the compiler, unlike the next
        if unseen:
            found = tl.full(word.shape, -_INF, tl.float64)
            for j in tl.static_range(count_of(KIND)):
                x = number_in(word, other, j, KIND, True)
                finite = (valid > j) & (tl.abs(x) < _INF)
                found = tl.maximum(found, tl.where(finite, x.to(tl.float64), -_INF))
            largest = tl.max(tl.ravel(found), 0)
            unseen = largest == -_INF
            around = tl.where(unseen, 0.0, largest)
    return around, unseen


@triton.jit  # type: ignore[untyped-decorator]
def nothing_yet(zeros, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """total, squares, sizes, low, high, zeros, nan, pos, neg, all in the shape of these int32 zeros."""
    if KIND <= 3:
        number = zeros
        least = zeros + _MOST
    elif is_wide(KIND):
        number = zeros.to(tl.float64)
        least = number + _INF
    else:
        number = zeros.to(tl.float64)
        least = zeros.to(tl.float32) + _INF
    return number, number, number, least, -least, zeros, zeros, zeros, zeros


@triton.jit
def record(  # type: ignore[no-untyped-def]
    elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
):
    """What one program found, in float64: the mean, the squared distances from it, and the rest."""
    nan = tl.sum(tl.ravel(nan).to(tl.int64), 0).to(tl.float64)
    pos = tl.sum(tl.ravel(pos).to(tl.int64), 0).to(tl.float64)
    neg = tl.sum(tl.ravel(neg).to(tl.int64), 0).to(tl.float64)
    zeros = tl.sum(tl.ravel(zeros).to(tl.int64), 0).to(tl.float64)
    finite = elements.to(tl.float64) - nan - pos - neg
    some = tl.maximum(finite, 1.0)
    total = tl.sum(tl.ravel(total).to(tl.float64), 0)
    mean = around + total / some
    squares = tl.maximum(tl.sum(tl.ravel(squares).to(tl.float64), 0) - total * (total / some), 0.0)
    sizes = tl.sum(tl.ravel(sizes).to(tl.float64), 0)
    low = tl.min(tl.ravel(low), 0).to(tl.float64)
    high = tl.max(tl.ravel(high), 0).to(tl.float64)
    return finite, mean, squares, sizes, low, high, nan, pos, neg, zeros


# --- records into rows ---


@triton.jit
def _write(row, finite, mean, squares, sizes, low, high, nan, pos, neg, zeros):  # type: ignore[no-untyped-def]
    """As `stats.ROW` has them."""
    some = finite > 0
    tl.store(row, tl.where(some, low, _NAN))
    tl.store(row + 1, tl.where(some, high, _NAN))
    tl.store(row + 2, tl.where(some, mean, _NAN))
    tl.store(row + 3, tl.where(some, tl.sqrt(squares / tl.maximum(finite, 1.0)), _NAN))
    tl.store(row + 4, sizes)
    tl.store(row + 5, nan)
    tl.store(row + 6, pos)
    tl.store(row + 7, neg)
    tl.store(row + 8, zeros)


@triton.jit
def publish(  # type: ignore[no-untyped-def]
    row, scratch, which, program, first, end, finite, mean, squares, sizes, low, high, nan, pos, neg, zeros
):
    """Leave the record of a program; the last of a tensor's programs merges them all."""
    if end - first == 1:
        _write(row, finite, mean, squares, sizes, low, high, nan, pos, neg, zeros)
    else:
        records = scratch.to(tl.pointer_type(tl.float64)) + _COUNTERS
        mine = records + program * _RECORD
        tl.store(mine, finite)
        tl.store(mine + 1, mean)
        tl.store(mine + 2, squares)
        tl.store(mine + 3, sizes)
        tl.store(mine + 4, low)
        tl.store(mine + 5, high)
        tl.store(mine + 6, nan)
        tl.store(mine + 7, pos)
        tl.store(mine + 8, neg)
        tl.store(mine + 9, zeros)
        tl.debug_barrier()  # every thread's stores come before the counter
        counter = scratch.to(tl.pointer_type(tl.int64)) + which
        if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == end - first - 1:
            tl.debug_barrier()
            _merge(row, records, first, end)
            tl.store(counter, first * 0)  # for the next launch


@triton.jit
def _merge(row, records, first, end):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, _MERGED_AT_ONCE)
    zero = tl.zeros([_MERGED_AT_ONCE], tl.float64)
    finite, mean, squares, sizes, nan, pos, neg, zeros = zero, zero, zero, zero, zero, zero, zero, zero
    low = tl.full([_MERGED_AT_ONCE], _INF, tl.float64)
    high = -low
    for start in range(first, end, _MERGED_AT_ONCE):
        inside = start + lanes < end
        at = records + (start + lanes) * _RECORD
        # Not through the first cache, which knows nothing of what other programs wrote.
        more = tl.load(at, mask=inside, other=0.0, cache_modifier=".cg")
        its_mean = tl.load(at + 1, mask=inside, other=0.0, cache_modifier=".cg")
        squares += tl.load(at + 2, mask=inside, other=0.0, cache_modifier=".cg")
        sizes += tl.load(at + 3, mask=inside, other=0.0, cache_modifier=".cg")
        low = tl.minimum(low, tl.load(at + 4, mask=inside, other=_INF, cache_modifier=".cg"))
        high = tl.maximum(high, tl.load(at + 5, mask=inside, other=-_INF, cache_modifier=".cg"))
        nan += tl.load(at + 6, mask=inside, other=0.0, cache_modifier=".cg")
        pos += tl.load(at + 7, mask=inside, other=0.0, cache_modifier=".cg")
        neg += tl.load(at + 8, mask=inside, other=0.0, cache_modifier=".cg")
        zeros += tl.load(at + 9, mask=inside, other=0.0, cache_modifier=".cg")
        both = finite + more
        share = more / tl.maximum(both, 1.0)
        apart = tl.where((finite > 0) & (more > 0), its_mean - mean, 0.0)
        squares += apart * apart * (finite * share)
        mean = tl.where(finite > 0, mean + apart * share, its_mean)
        finite = both
    # Around the largest mean of a lane, so that lanes that agree give exactly what they agree on.
    count = tl.sum(finite, 0)
    around = tl.max(tl.where(finite > 0, mean, -_INF), 0)
    around = tl.where(count > 0, around, 0.0)
    away = tl.where(finite > 0, mean - around, 0.0)
    shift = tl.sum(finite * away, 0) / tl.maximum(count, 1.0)
    away = tl.where(finite > 0, away - shift, 0.0)
    all_squares = tl.sum(squares + finite * away * away, 0)
    _write(
        row, count, around + shift, all_squares, tl.sum(sizes, 0), tl.min(low, 0), tl.max(high, 0),
        tl.sum(nan, 0), tl.sum(pos, 0), tl.sum(neg, 0), tl.sum(zeros, 0),
    )  # fmt: skip
