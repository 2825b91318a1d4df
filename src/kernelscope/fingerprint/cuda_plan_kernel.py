"""The Triton kernel for planned fingerprints: everything but the addresses stands in a table on the device.

A launch then has few arguments, and one kernel takes tensors of all the usual layouts together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .cuda_kernels import _POSITION, mix, strided_sum, transposed_sum

TENSORS_AT_ONCE = 4
FLAT, TRANSPOSED_2, TRANSPOSED_4, STRIDED = range(4)
# A table: the programs up to which each tensor goes, then an entry for each.
ENTRY = 16  # layout, row in the log, bytes, first program, programs, and up to nine numbers of its layout
TABLE = TENSORS_AT_ONCE + TENSORS_AT_ONCE * ENTRY

_NUMBERS = ["table", "log", *(f"p{i}" for i in range(TENSORS_AT_ONCE))]
_ENTRY = tl.constexpr(ENTRY)
_AT_ONCE = tl.constexpr(TENSORS_AT_ONCE)
_FLAT = tl.constexpr(FLAT)
_TRANSPOSED_2 = tl.constexpr(TRANSPOSED_2)
_TRANSPOSED_4 = tl.constexpr(TRANSPOSED_4)


@triton.jit  # type: ignore[untyped-decorator]
def _aligned_sum(address, nbytes, program, programs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    words = nbytes // 8
    source = address.to(tl.pointer_type(tl.uint64))
    lanes = tl.arange(0, BLOCK)
    keys = (program * BLOCK + lanes + 1).to(tl.uint64) * _POSITION
    key_step = (programs * BLOCK).to(tl.uint64) * _POSITION
    total = tl.zeros([BLOCK], tl.uint64)
    for start in range(program * BLOCK, words, programs * BLOCK):
        here = start + lanes
        inside = here < words
        word = tl.load(source + here, mask=inside, other=0)
        total += tl.where(inside, mix(word ^ keys), 0)
        keys += key_step
    return tl.sum(total, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _shifted_sum(address, nbytes, program, programs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A load must not be misaligned, so two neighbouring words are shifted into one.

    The bytes that are read beyond the ends lie in words that the tensor has a part of.
    """
    words = nbytes // 8
    shift = (address % 8).to(tl.uint64) * 8
    source = (address - address % 8).to(tl.pointer_type(tl.uint64))
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.uint64)
    for start in range(program * BLOCK, words, programs * BLOCK):
        here = start + lanes
        inside = here < words
        word = tl.load(source + here, mask=inside, other=0)
        above = tl.load(source + here + 1, mask=inside, other=0)
        word = (word >> shift) | (above << (64 - shift))
        total += tl.where(inside, mix(word ^ ((here + 1).to(tl.uint64) * _POSITION)), 0)
    return tl.sum(total, 0)


@triton.jit
def _tail(address, nbytes):  # type: ignore[no-untyped-def]
    """What is left beyond the last whole word."""
    words = nbytes // 8
    left = nbytes - words * 8
    bytes = tl.arange(0, 8)
    end = address.to(tl.pointer_type(tl.uint8)) + words * 8
    value = tl.load(end + bytes, mask=bytes < left, other=0).to(tl.uint64) << (bytes * 8).to(tl.uint64)
    return mix(tl.sum(value, 0) ^ ((words + 1).to(tl.uint64) * _POSITION))


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def planned(
    table: tl.int64, log: tl.int64, p0: tl.int64, p1: tl.int64, p2: tl.int64, p3: tl.int64,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
) -> None:  # fmt: skip
    """Up to four tensors at addresses p, as the table describes them."""
    program = tl.program_id(0).to(tl.int64)
    ends = table.to(tl.pointer_type(tl.int64))
    which = (program >= tl.load(ends)).to(tl.int64)
    which += (program >= tl.load(ends + 1)).to(tl.int64)
    which += (program >= tl.load(ends + 2)).to(tl.int64)
    address = tl.where(which == 0, p0, tl.where(which == 1, p1, tl.where(which == 2, p2, p3)))
    entry = ends + _AT_ONCE + which * _ENTRY
    layout = tl.load(entry)
    nbytes = tl.load(entry + 2)
    local = program - tl.load(entry + 3)
    programs = tl.load(entry + 4)
    sum = tl.zeros([1], tl.uint64)
    if layout == _FLAT:
        if address % 8 == 0:
            sum += _aligned_sum(address, nbytes, local, programs, BLOCK)
        else:
            sum += _shifted_sum(address, nbytes, local, programs, BLOCK)
        if (local == 0) & (nbytes % 8 > 0):
            sum += _tail(address, nbytes)
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
    else:
        none = nbytes * 0
        sum += strided_sum(
            address, nbytes, local, programs, tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7),
            tl.load(entry + 8), tl.load(entry + 9), tl.load(entry + 10), tl.load(entry + 11),
            tl.load(entry + 12), none, none, none, 8, 4, tl.uint32, BLOCK,
        )  # fmt: skip
    slot = log.to(tl.pointer_type(tl.int64)) + tl.load(entry + 1)
    tl.atomic_add(slot + tl.zeros([1], tl.int32), sum.to(tl.int64, bitcast=True), sem="relaxed")
