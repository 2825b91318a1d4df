"""The Triton kernel that looks for NaN and infinities. Imported only where there is a GPU.

It writes nothing where all is finite, so what it costs is one read. Which element is what does not matter, so
a tensor is read as 64-bit words in the order of its memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .words import wait_for_the_one_before

TENSORS_AT_ONCE = 8
# Kinds: how wide an element is, and which of its bits are all ones in what is not finite.
F32, F16, BF16, F64, E5M2, E4M3 = range(6)
ROW = 3  # of a tensor: how many are NaN, +inf, -inf
_NUMBERS = ["rows", "flag", "wanted", *(f"{what}{i}" for i in range(TENSORS_AT_ONCE) for what in "pa")]
_ROW = tl.constexpr(ROW)


@triton.jit
def _lanes(kind):  # type: ignore[no-untyped-def]
    """Of each element in a word: the bits of its exponent, its lowest bit, its highest bit."""
    exponent = tl.full([], 0x7F8000007F800000, tl.uint64)
    exponent = tl.where(kind == 1, tl.full([], 0x7C007C007C007C00, tl.uint64), exponent)
    exponent = tl.where(kind == 2, tl.full([], 0x7F807F807F807F80, tl.uint64), exponent)
    exponent = tl.where(kind == 3, tl.full([], 0x7FF0000000000000, tl.uint64), exponent)
    exponent = tl.where(kind == 4, tl.full([], 0x7C7C7C7C7C7C7C7C, tl.uint64), exponent)
    exponent = tl.where(kind == 5, tl.full([], 0x7F7F7F7F7F7F7F7F, tl.uint64), exponent)
    low = tl.full([], 0x0000000100000001, tl.uint64)
    low = tl.where((kind == 1) | (kind == 2), tl.full([], 0x0001000100010001, tl.uint64), low)
    low = tl.where(kind == 3, tl.full([], 1, tl.uint64), low)
    low = tl.where(kind >= 4, tl.full([], 0x0101010101010101, tl.uint64), low)
    width = tl.where(kind == 3, 64, tl.where(kind == 0, 32, tl.where(kind >= 4, 8, 16)))
    return exponent, low, low << (width - 1).to(tl.uint64), width


@triton.jit
def _suspects(word, exponent, low, high):  # type: ignore[no-untyped-def]
    """Not zero where an element of the word has only ones in its exponent, and zero where none has."""
    apart = (word & exponent) ^ exponent  # nowhere the highest bit, so that a borrow shows there
    return (apart - low) & high


@triton.jit
def _counted(word, inside, kind, exponent, width):  # type: ignore[no-untyped-def]
    """How many elements of these words are NaN, +inf and -inf."""
    nan = tl.zeros(word.shape, tl.int32)
    pos = nan
    neg = nan
    ones = tl.full([], 0xFFFFFFFFFFFFFFFF, tl.uint64) >> (64 - width).to(tl.uint64)
    infinity = exponent & ones
    sign = (ones >> tl.full([], 1, tl.uint64)) + tl.full([], 1, tl.uint64)
    has_infinity = kind != 5
    nan_above = tl.where(has_infinity, infinity, infinity - tl.full([], 1, tl.uint64))
    for j in tl.static_range(8):
        at = (j * width).to(tl.uint64)
        here = inside & (j * width < 64)
        element = (word >> tl.minimum(at, tl.full([], 63, tl.uint64))) & ones
        size = element & (ones >> tl.full([], 1, tl.uint64))
        nan += (here & (size > nan_above)).to(tl.int32)
        pos += (here & has_infinity & (element == infinity)).to(tl.int32)
        neg += (here & has_infinity & (element == infinity + sign)).to(tl.int32)
    return tl.sum(nan.to(tl.int64), 0), tl.sum(pos.to(tl.int64), 0), tl.sum(neg.to(tl.int64), 0)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def scan(
    rows: tl.int64, flag: tl.int64, wanted: tl.int64,
    p0: tl.int64, a0: tl.int64, p1: tl.int64, a1: tl.int64, p2: tl.int64, a2: tl.int64,
    p3: tl.int64, a3: tl.int64, p4: tl.int64, a4: tl.int64, p5: tl.int64, a5: tl.int64,
    p6: tl.int64, a6: tl.int64, p7: tl.int64, a7: tl.int64,
    BLOCK: tl.constexpr, HOPPER: tl.constexpr,
) -> None:  # fmt: skip
    """Up to eight tensors at addresses p, multiples of 8. About each, in a: from its lowest bit on

    32 bits: full words · 16 bits: programs up to and with it · 3 bits: bytes after the last full word ·
    4 bits: kind. `wanted` has bits for NaN, +inf and -inf: one of those raises the flag.
    """
    program = tl.program_id(0).to(tl.int64)
    mask: tl.constexpr = 0xFFFF
    address, about, first, which = p0, a0, rows * 0, 0
    if program >= (a0 >> 32) & mask:
        address, about, first, which = p1, a1, (a0 >> 32) & mask, 1
    if program >= (a1 >> 32) & mask:
        address, about, first, which = p2, a2, (a1 >> 32) & mask, 2
    if program >= (a2 >> 32) & mask:
        address, about, first, which = p3, a3, (a2 >> 32) & mask, 3
    if program >= (a3 >> 32) & mask:
        address, about, first, which = p4, a4, (a3 >> 32) & mask, 4
    if program >= (a4 >> 32) & mask:
        address, about, first, which = p5, a5, (a4 >> 32) & mask, 5
    if program >= (a5 >> 32) & mask:
        address, about, first, which = p6, a6, (a5 >> 32) & mask, 6
    if program >= (a6 >> 32) & mask:
        address, about, first, which = p7, a7, (a6 >> 32) & mask, 7
    words = about & 0xFFFFFFFF
    programs = ((about >> 32) & mask) - first
    rest = (about >> 48) & 7
    kind = ((about >> 51) & 15).to(tl.int32)
    exponent, low, high, width = _lanes(kind)
    base = address.to(tl.pointer_type(tl.uint64))
    lanes = tl.arange(0, BLOCK)
    local = program - first
    wait_for_the_one_before(HOPPER)
    found = tl.zeros([BLOCK], tl.uint64)
    for start in range(local * BLOCK, words, programs * BLOCK):
        at = start + lanes
        word = tl.load(base + at, mask=at < words, other=0)
        found |= _suspects(word, exponent, low, high)
    # The bytes after the last full word, in the first program.
    tail = tl.zeros([BLOCK], tl.uint64)
    if local == 0:
        last = address.to(tl.pointer_type(tl.uint8)) + words * 8
        inside = lanes < rest
        byte = tl.load(last + lanes, mask=inside, other=0).to(tl.uint64)
        shift = (tl.minimum(lanes, 7) * 8).to(tl.uint64)
        whole = tl.sum(tl.where(inside, byte << shift, 0), 0)
        tail = tl.where(lanes == 0, whole, 0).to(tl.uint64)
        found |= _suspects(tail, exponent, low, high)
    if tl.max((found != 0).to(tl.int32), 0) > 0:
        nan, pos, neg = _counted(tail, lanes == 0, kind, exponent, width)
        for start in range(local * BLOCK, words, programs * BLOCK):
            at = start + lanes
            word = tl.load(base + at, mask=at < words, other=0)
            more_nan, more_pos, more_neg = _counted(word, at < words, kind, exponent, width)
            nan += more_nan
            pos += more_pos
            neg += more_neg
        row = rows.to(tl.pointer_type(tl.int64)) + which * _ROW
        tl.atomic_add(row, nan, sem="relaxed")
        tl.atomic_add(row + 1, pos, sem="relaxed")
        tl.atomic_add(row + 2, neg, sem="relaxed")
        hit = ((wanted & 1) * nan + ((wanted >> 1) & 1) * pos + ((wanted >> 2) & 1) * neg) > 0
        if hit:
            # Memory of the host: it may look there whenever it likes.
            tl.store(flag.to(tl.pointer_type(tl.int32)), 1)
