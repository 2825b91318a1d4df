"""The Triton kernels for planned fingerprints.

Of tensors of all the usual layouts together everything but the addresses stands in a table on the device. Of
contiguous ones so little is to be known that it is passed: nothing has to be looked up before reading.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernelscope.fingerprint.cuda.planned_layouts import (
    BOTH,
    ENTRY,
    FLAT,
    FLAT_AT_ONCE,
    PAIRED,
    RUNS,
    STRIDED_2,
    TENSORS_AT_ONCE,
    TRANSPOSED_2,
    TRANSPOSED_4,
)

from .sums import both_sums, flat_sum, paired_sum, runs_sum, strided_sum, tail, transposed_sum
from .words import wait_for_the_one_before

_FLAT_NUMBERS = ["log", *(f"{what}{i}" for i in range(FLAT_AT_ONCE) for what in "pner")]
# A table: the programs up to which each of 32 tensors goes, then an entry for each that there is.
_NUMBERS = ["table", "log", *(f"p{i}" for i in range(TENSORS_AT_ONCE))]
_ENTRY = tl.constexpr(ENTRY)
_AT_ONCE = tl.constexpr(TENSORS_AT_ONCE)
_FLAT = tl.constexpr(FLAT)
_BOTH = tl.constexpr(BOTH)
_PAIRED = tl.constexpr(PAIRED)
_RUNS = tl.constexpr(RUNS)
_TRANSPOSED_2 = tl.constexpr(TRANSPOSED_2)
_TRANSPOSED_4 = tl.constexpr(TRANSPOSED_4)
_STRIDED_2 = tl.constexpr(STRIDED_2)


@triton.jit
def _one_of_four(which, a, b, c, d):  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    first, second = tl.where(which % 2 == 0, a, b), tl.where(which % 2 == 0, c, d)
    return tl.where(which % 4 < 2, first, second)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def planned(
    table: tl.int64, log: tl.int64,
    p0: tl.int64, p1: tl.int64, p2: tl.int64, p3: tl.int64,
    p4: tl.int64, p5: tl.int64, p6: tl.int64, p7: tl.int64,
    p8: tl.int64, p9: tl.int64, p10: tl.int64, p11: tl.int64,
    p12: tl.int64, p13: tl.int64, p14: tl.int64, p15: tl.int64,
    p16: tl.int64, p17: tl.int64, p18: tl.int64, p19: tl.int64,
    p20: tl.int64, p21: tl.int64, p22: tl.int64, p23: tl.int64,
    p24: tl.int64, p25: tl.int64, p26: tl.int64, p27: tl.int64,
    p28: tl.int64, p29: tl.int64, p30: tl.int64, p31: tl.int64,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, LAST: tl.constexpr,
    HOPPER: tl.constexpr,
) -> None:  # fmt: skip
    """Up to 32 tensors at addresses p, multiples of 8, as the table describes them.

    Their layouts are LAST or before it: a kernel that knows few of them needs fewer registers.
    """
    program = tl.program_id(0).to(tl.int64)
    ends = table.to(tl.pointer_type(tl.int64))
    before = (tl.load(ends + tl.arange(0, _AT_ONCE)) <= program).to(tl.int32)
    which = tl.sum(before, 0).to(tl.int64)
    address = tl.where(
        which < 16,
        _one_of_four(
            which // 4,
            _one_of_four(which, p0, p1, p2, p3), _one_of_four(which, p4, p5, p6, p7),
            _one_of_four(which, p8, p9, p10, p11), _one_of_four(which, p12, p13, p14, p15),
        ),
        _one_of_four(
            which // 4,
            _one_of_four(which, p16, p17, p18, p19), _one_of_four(which, p20, p21, p22, p23),
            _one_of_four(which, p24, p25, p26, p27), _one_of_four(which, p28, p29, p30, p31),
        ),
    )  # fmt: skip
    entry = ends + _AT_ONCE + which * _ENTRY
    layout = tl.load(entry)
    nbytes = tl.load(entry + 2)
    local = program - tl.load(entry + 3)
    programs = tl.load(entry + 4)
    sum = tl.zeros([1], tl.uint64)
    wait_for_the_one_before(HOPPER)
    if layout == _FLAT:
        sum += flat_sum(address, nbytes, local, programs, BLOCK)
        if (local == 0) & (nbytes % 8 > 0):
            sum += tail(address, nbytes)
    elif LAST == _BOTH or layout == _BOTH:
        flat, swapped = both_sums(
            address, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            ROWS // 4, 2 * WORDS,
        )  # fmt: skip
        sum += flat
        other = log.to(tl.pointer_type(tl.int64)) + tl.load(entry + 8)
        swapped = tl.zeros([1], tl.uint64) + swapped
        tl.atomic_add(other + tl.zeros([1], tl.int32), swapped.to(tl.int64, bitcast=True), sem="relaxed")
    elif layout == _PAIRED:
        sum += paired_sum(
            address, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11), ROWS, WORDS,
        )  # fmt: skip
    elif layout == _RUNS:
        sum += runs_sum(
            address, nbytes, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
            tl.load(entry + 12), tl.load(entry + 13), BLOCK,
        )  # fmt: skip
    elif layout == _TRANSPOSED_2:
        sum += transposed_sum(
            address, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
            2, ROWS, WORDS,
        )  # fmt: skip
    elif layout == _TRANSPOSED_4:
        sum += transposed_sum(
            address, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
            4, ROWS, WORDS,
        )  # fmt: skip
    elif LAST == _STRIDED_2:
        if layout == _STRIDED_2:
            sum += strided_sum(
                address, nbytes, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
                tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
                tl.load(entry + 12), nbytes * 0, nbytes * 0, nbytes * 0, 2, 4, tl.uint32, BLOCK,
            )  # fmt: skip
        else:
            sum += strided_sum(
                address, nbytes, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
                tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
                tl.load(entry + 12), nbytes * 0, nbytes * 0, nbytes * 0, 8, 4, tl.uint32, BLOCK,
            )  # fmt: skip
    else:
        sum += strided_sum(
            address, nbytes, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
            tl.load(entry + 12), nbytes * 0, nbytes * 0, nbytes * 0, 8, 4, tl.uint32, BLOCK,
        )  # fmt: skip
    slot = log.to(tl.pointer_type(tl.int64)) + tl.load(entry + 1)
    tl.atomic_add(slot + tl.zeros([1], tl.int32), sum.to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit(do_not_specialize=_FLAT_NUMBERS)  # type: ignore[untyped-decorator]
def planned_flat(
    log: tl.int64,
    p0: tl.int64, n0: tl.int64, e0: tl.int64, r0: tl.int64,
    p1: tl.int64, n1: tl.int64, e1: tl.int64, r1: tl.int64,
    p2: tl.int64, n2: tl.int64, e2: tl.int64, r2: tl.int64,
    p3: tl.int64, n3: tl.int64, e3: tl.int64, r3: tl.int64,
    p4: tl.int64, n4: tl.int64, e4: tl.int64, r4: tl.int64,
    p5: tl.int64, n5: tl.int64, e5: tl.int64, r5: tl.int64,
    p6: tl.int64, n6: tl.int64, e6: tl.int64, r6: tl.int64,
    p7: tl.int64, n7: tl.int64, e7: tl.int64, r7: tl.int64,
    BLOCK: tl.constexpr, HOPPER: tl.constexpr,
) -> None:  # fmt: skip
    """Up to eight contiguous tensors of n bytes at addresses p, multiples of 8.

    Each has the programs below e, and row r of the log.
    """
    program = tl.program_id(0).to(tl.int64)
    address, nbytes, first, end, row = p0, n0, e0 * 0, e0, r0
    if program >= e0:
        address, nbytes, first, end, row = p1, n1, e0, e1, r1
    if program >= e1:
        address, nbytes, first, end, row = p2, n2, e1, e2, r2
    if program >= e2:
        address, nbytes, first, end, row = p3, n3, e2, e3, r3
    if program >= e3:
        address, nbytes, first, end, row = p4, n4, e3, e4, r4
    if program >= e4:
        address, nbytes, first, end, row = p5, n5, e4, e5, r5
    if program >= e5:
        address, nbytes, first, end, row = p6, n6, e5, e6, r6
    if program >= e6:
        address, nbytes, first, end, row = p7, n7, e6, e7, r7
    local = program - first
    wait_for_the_one_before(HOPPER)
    sum = flat_sum(address, nbytes, local, end - first, BLOCK)
    if (local == 0) & (nbytes % 8 > 0):
        sum += tail(address, nbytes)
    tl.atomic_add(log.to(tl.pointer_type(tl.int64)) + row, sum.to(tl.int64, bitcast=True), sem="relaxed")
