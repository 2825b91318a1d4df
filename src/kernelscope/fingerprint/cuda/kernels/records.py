"""The records that programs of the Triton kernels leave, and how they are merged into rows of statistics."""

from __future__ import annotations

import triton
import triton.language as tl

from kernelscope.fingerprint.cuda.stats_batches import COUNTERS, GROUP, RECORD

from .words import wait_for_the_one_before

_INF = tl.constexpr(float("inf"))
_RECORD = tl.constexpr(RECORD)
_GROUP = tl.constexpr(GROUP)
_COUNTERS = tl.constexpr(COUNTERS)
_MERGED_AT_ONCE = tl.constexpr(256)
# How many times their variance the square of the distance between numbers and what they are summed up around
# may be: the digits of it that are lost to cancellation.
FAR = tl.constexpr(1000.0)
MERGE_ENTRY = 4
_MERGE_ENTRY = tl.constexpr(MERGE_ENTRY)


@triton.jit
def _write(row, found):  # type: ignore[no-untyped-def]
    """As `stats.ROW` has them."""
    finite, mean, squares, sizes, low, high, nan, pos, neg, zeros = found
    some = finite > 0
    nothing = _INF - _INF  # NaN
    tl.store(row, tl.where(some, low, nothing))
    tl.store(row + 1, tl.where(some, high, nothing))
    tl.store(row + 2, tl.where(some, mean, nothing))
    tl.store(row + 3, tl.where(some, tl.sqrt(squares / tl.maximum(finite, 1.0)), nothing))
    tl.store(row + 4, sizes)
    tl.store(row + 5, nan)
    tl.store(row + 6, pos)
    tl.store(row + 7, neg)
    tl.store(row + 8, zeros)


@triton.jit
def publish(row, scratch, which, first, local, programs, found, later):  # type: ignore[no-untyped-def]
    """Leave the record of program `local` behind number `first`.

    The last of a tensor's programs merges them all, unless they are merged later.
    """
    if (programs == 1) & (later == 0):
        _write(row, found)
    else:
        records = scratch.to(tl.pointer_type(tl.float64)) + _COUNTERS
        mine = _place(records, first + local)
        for i in tl.static_range(_RECORD):
            tl.store(mine + i * _GROUP, found[i])
        if later == 0:
            tl.debug_barrier()  # every thread's stores come before the counter
            counter = scratch.to(tl.pointer_type(tl.int64)) + which
            if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == programs - 1:
                tl.debug_barrier()
                _write(row, _merged(records, first, first + programs))
                tl.store(counter, first * 0)  # for the next launch


@triton.jit(do_not_specialize=["table", "rows", "scratch"])  # type: ignore[untyped-decorator]
def merge(
    table: tl.int64, rows: tl.int64, scratch: tl.int64, ROW: tl.constexpr, HOPPER: tl.constexpr
) -> None:
    """What was left for later. The table has of each tensor its first record, how many, and its rows:

    its own, and that of a view with the same elements, or its own once more.
    """
    entry = table.to(tl.pointer_type(tl.int64)) + tl.program_id(0) * _MERGE_ENTRY
    first, count, row, twin = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2), tl.load(entry + 3)
    wait_for_the_one_before(HOPPER)
    records = scratch.to(tl.pointer_type(tl.float64)) + _COUNTERS
    found = _merged(records, first, first + count)
    all_rows = rows.to(tl.pointer_type(tl.float64))
    _write(all_rows + row * ROW, found)
    _write(all_rows + twin * ROW, found)


@triton.jit
def _together(  # type: ignore[no-untyped-def]
    finite, total, squares, sizes, low, high, nan, pos, neg, zeros,
    finite_, total_, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_,
):  # fmt: skip
    return (
        finite + finite_, total + total_, squares + squares_, sizes + sizes_, tl.minimum(low, low_),
        tl.maximum(high, high_), nan + nan_, pos + pos_, neg + neg_, zeros + zeros_,
    )  # fmt: skip


@triton.jit
def _merged(records, first, end):  # type: ignore[no-untyped-def]
    """Records as one, their means summed up around the mean of the first ones.

    Two by two, as means are merged as a rule, each pair has a division, and all wait for it.
    """
    here = first + tl.arange(0, _MERGED_AT_ONCE)
    finite_, mean_, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = _loaded(records, here, end)
    around = tl.max(tl.where(finite_ > 0, mean_, -_INF), 0)
    around = tl.where(around == -_INF, 0.0, around)
    away = tl.where(finite_ > 0, mean_ - around, 0.0)
    some, apart = tl.reduce((finite_, finite_ * away), 0, _added)
    around += apart / tl.maximum(some, 1.0)

    found = _merged_around(
        records, first, end, around, finite_, mean_, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_
    )
    apart = found[1] - around
    if found[0] * apart * apart > found[2] * FAR:  # the first ones have few numbers, and unlike the others
        finite_, mean_, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = _loaded(records, here, end)
        found = _merged_around(
            records, first, end, found[1], finite_, mean_, squares_, sizes_, low_, high_, nan_, pos_, neg_,
            zeros_,
        )  # fmt: skip
    return found


@triton.jit
def _merged_around(  # type: ignore[no-untyped-def]
    records, first, end, around, finite_, mean_, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_
):
    """Records as one, given the first ones."""
    here = first + tl.arange(0, _MERGED_AT_ONCE)
    finite = tl.zeros([_MERGED_AT_ONCE], tl.float64)
    total, squares, sizes, nan, pos, neg, zeros = finite, finite, finite, finite, finite, finite, finite
    low, high = finite + _INF, finite - _INF
    for _start in range(first, end, _MERGED_AT_ONCE):
        here += _MERGED_AT_ONCE  # the next ones are on their way while these are added
        coming = _loaded(records, here, end)
        away = tl.where(finite_ > 0, mean_ - around, 0.0)
        finite, total, squares, sizes, low, high, nan, pos, neg, zeros = _together(
            finite, total, squares, sizes, low, high, nan, pos, neg, zeros,
            finite_, finite_ * away, squares_ + finite_ * away * away, sizes_, low_, high_, nan_, pos_, neg_,
            zeros_,
        )  # fmt: skip
        finite_, mean_, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = coming
    finite, total, squares, sizes, low, high, nan, pos, neg, zeros = tl.reduce(
        (finite, total, squares, sizes, low, high, nan, pos, neg, zeros), 0, _together
    )
    away = total / tl.maximum(finite, 1.0)
    squares = tl.maximum(squares - total * away, 0.0)
    return finite, around + away, squares, sizes, low, high, nan, pos, neg, zeros


@triton.jit
def _added(a, b, a_, b_):  # type: ignore[no-untyped-def]
    return a + a_, b + b_


@triton.jit
def _place(records, which):  # type: ignore[no-untyped-def]
    """Of a record's first number. Each other one is a group further: those of many records lie together."""
    return records + which // _GROUP * (_GROUP * _RECORD) + which % _GROUP


@triton.jit
def _loaded(records, which, end):  # type: ignore[no-untyped-def]
    """Not through the first cache, which knows nothing of what other programs wrote."""
    at = _place(records, which)
    inside = which < end
    return (
        tl.load(at, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + 2 * _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + 3 * _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + 4 * _GROUP, mask=inside, other=_INF, cache_modifier=".cg"),
        tl.load(at + 5 * _GROUP, mask=inside, other=-_INF, cache_modifier=".cg"),
        tl.load(at + 6 * _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + 7 * _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + 8 * _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
        tl.load(at + 9 * _GROUP, mask=inside, other=0.0, cache_modifier=".cg"),
    )
