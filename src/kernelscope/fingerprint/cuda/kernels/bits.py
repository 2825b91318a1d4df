"""The Triton kernels for `bits`. Imported only where there is a GPU.

Each adds the sum of the definition, over the words it looked at, to an entry of the log. Addresses arrive as
integers and nothing is specialised on, so that one compiled kernel serves every tensor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .sums import flat_sum, paired_sum, shifted_sum, strided_sum, tail, transposed_sum

TENSORS_AT_ONCE = 8
_FLAT_NUMBERS = ["log"] + [f"{what}{i}" for i in range(TENSORS_AT_ONCE) for what in "pne"]
_STRIDED_NUMBERS = ["log", "base", "nbytes"] + [f"{what}{i}" for i in range(6) for what in ("size", "stride")]
_TRANSPOSED_NUMBERS = [
    *("log", "base", "row_words", "stride", "rows", "rows_apart", "outer", "outer_stride", "outer_apart")
]


@triton.jit(do_not_specialize=_FLAT_NUMBERS)  # type: ignore[untyped-decorator]
def flat(
    log: tl.int64,
    p0: tl.int64, n0: tl.int64, e0: tl.int64,
    p1: tl.int64, n1: tl.int64, e1: tl.int64,
    p2: tl.int64, n2: tl.int64, e2: tl.int64,
    p3: tl.int64, n3: tl.int64, e3: tl.int64,
    p4: tl.int64, n4: tl.int64, e4: tl.int64,
    p5: tl.int64, n5: tl.int64, e5: tl.int64,
    p6: tl.int64, n6: tl.int64, e6: tl.int64,
    p7: tl.int64, n7: tl.int64, e7: tl.int64,
    BLOCK: tl.constexpr, MISALIGNED: tl.constexpr = False,
) -> None:  # fmt: skip
    """Up to eight contiguous tensors of n bytes at addresses p; each has the programs below e.

    MISALIGNED says whether there may be an address among them that is not a multiple of 8.
    """
    program = tl.program_id(0).to(tl.int64)
    address, nbytes, first, end, which = p0, n0, e0 * 0, e0, 0
    if program >= e0:
        address, nbytes, first, end, which = p1, n1, e0, e1, 1
    if program >= e1:
        address, nbytes, first, end, which = p2, n2, e1, e2, 2
    if program >= e2:
        address, nbytes, first, end, which = p3, n3, e2, e3, 3
    if program >= e3:
        address, nbytes, first, end, which = p4, n4, e3, e4, 4
    if program >= e4:
        address, nbytes, first, end, which = p5, n5, e4, e5, 5
    if program >= e5:
        address, nbytes, first, end, which = p6, n6, e5, e6, 6
    if program >= e6:
        address, nbytes, first, end, which = p7, n7, e6, e7, 7
    local = program - first
    if MISALIGNED:
        sum = shifted_sum(address, nbytes, local, end - first, BLOCK)
    else:
        sum = flat_sum(address, nbytes, local, end - first, BLOCK)
    if (local == 0) & (nbytes % 8 > 0):
        sum += tail(address, nbytes)
    tl.atomic_add(log.to(tl.pointer_type(tl.int64)) + which, sum.to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit(do_not_specialize=_STRIDED_NUMBERS)  # type: ignore[untyped-decorator]
def strided(
    log: tl.int64, base: tl.int64, nbytes: tl.int64,
    size0: tl.int64, stride0: tl.int64, size1: tl.int64, stride1: tl.int64,
    size2: tl.int64, stride2: tl.int64, size3: tl.int64, stride3: tl.int64,
    size4: tl.int64, stride4: tl.int64, size5: tl.int64, stride5: tl.int64,
    WIDTH: tl.constexpr, DIMS: tl.constexpr, NUMBER: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One tensor of any layout: innermost dimension first, strides in bytes, loads of WIDTH bytes.

    NUMBER is the type of indices: a 64-bit division costs as much as all the rest.
    """
    sum = strided_sum(
        base, nbytes, tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64),
        size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4, stride5,
        WIDTH, DIMS, NUMBER, BLOCK,
    )  # fmt: skip
    tl.atomic_add(log.to(tl.pointer_type(tl.int64)), sum.to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit(do_not_specialize=_TRANSPOSED_NUMBERS)  # type: ignore[untyped-decorator]
def transposed(
    log: tl.int64, base: tl.int64,
    row_words: tl.int64, stride: tl.int64, rows: tl.int64, rows_apart: tl.int64,
    outer: tl.int64, outer_stride: tl.int64, outer_apart: tl.int64,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, PAIRED: tl.constexpr = False,
) -> None:  # fmt: skip
    """A tensor whose innermost dimension is not the one that is contiguous in memory.

    Elements have WIDTH bytes. Those of a row lie `stride` bytes apart and make up row_words words; rows lie
    WIDTH bytes apart in memory, and rows_apart words in logical order. Tiles are read along the rows, which
    coalesces; PAIRED, two rows of 2-byte elements at once.
    """
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    if PAIRED:
        sum = paired_sum(
            base, program, programs, row_words, stride, rows, rows_apart, outer, outer_stride, outer_apart,
            ROWS, WORDS,
        )  # fmt: skip
    else:
        sum = transposed_sum(
            base, program, programs, row_words, stride, rows, rows_apart, outer, outer_stride, outer_apart,
            WIDTH, ROWS, WORDS,
        )  # fmt: skip
    tl.atomic_add(log.to(tl.pointer_type(tl.int64)), sum.to(tl.int64, bitcast=True), sem="relaxed")
