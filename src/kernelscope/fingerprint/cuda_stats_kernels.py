"""The Triton kernels of level "stats". Imported only where there is a GPU.

A tensor is cut into shares, and where the cuts lie depends on its size alone. A program sums up one share, in
lanes that each go through their elements in order, and leaves a record; the program that finishes last merges
the records in order. So the same tensor gives the same numbers, whatever ran first.

Full tiles are summed up as if every number were finite; when that turns out wrong, the share is gone through
again with care.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .cuda_kernels import load, load_words, mix, offset
from .cuda_numbers import E4M3_BEYOND, bytes_of, count_of, is_fine, number_in
from .cuda_records import add_checked, add_finite, middle, nothing_yet, publish, record
from .definition import POSITION

_POSITION = tl.constexpr(POSITION)
_INF = tl.constexpr(float("inf"))
_KINDS = tl.constexpr(43)  # dtype codes are smaller

TENSORS_AT_ONCE = 8
_PLACES = ["sums", "rows", "scratch"]
_FLAT_NUMBERS = _PLACES + [f"{what}{i}" for i in range(TENSORS_AT_ONCE) for what in "pnek"]
_STRIDED_NUMBERS = [*_PLACES, "base", "nbytes"]
_STRIDED_NUMBERS += [f"{what}{i}" for i in range(6) for what in ("size", "stride")]
_TRANSPOSED_NUMBERS = [
    *_PLACES,
    *("base", "row_words", "stride", "rows_", "rows_apart", "outer", "outer_stride", "outer_apart"),
]


# --- contiguous tensors ---


@triton.jit  # type: ignore[untyped-decorator]
def _words(  # type: ignore[no-untyped-def]
    address, nbytes, here, KIND: tl.constexpr, MISALIGNED: tl.constexpr
):
    """Word number `here` (and the next, of a complex128), without bytes beyond the end; how many numbers."""
    if KIND == 16:
        left = tl.minimum(tl.maximum(nbytes - here * 16, 0), 16)
        word = load_words(address, 2 * here, left > 0, left > 0, MISALIGNED)
        other = load_words(address, 2 * here + 1, left > 0, left > 0, MISALIGNED)
    else:
        left = tl.minimum(tl.maximum(nbytes - here * 8, 0), 8)
        word = load_words(address, here, left > 0, address % 8 + left > 8, MISALIGNED)
        bits = (tl.minimum(left, 7) * 8).to(tl.uint64)
        word = tl.where(left == 8, word, word & ((bits * 0 + 1 << bits) - 1))
        other = word
    return word, other, (left // bytes_of(KIND)).to(tl.int32), left


@triton.jit  # type: ignore[untyped-decorator]
def _hashed(word, other, here, left, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    if KIND == 16:
        first = mix(word ^ ((2 * here + 1).to(tl.uint64) * _POSITION))
        mixed = first + mix(other ^ ((2 * here + 2).to(tl.uint64) * _POSITION))
    else:
        mixed = mix(word ^ ((here + 1).to(tl.uint64) * _POSITION))
    return tl.where(left > 0, mixed, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _share(  # type: ignore[no-untyped-def]
    address, nbytes, local, programs, KIND: tl.constexpr, MISALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of the definition and the record of every programs-th tile, from number `local` on."""
    SIZE: tl.constexpr = bytes_of(KIND)
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    COUNT: tl.constexpr = count_of(KIND)
    lanes = tl.arange(0, BLOCK)
    tiles = nbytes // (BLOCK * LANE)  # full ones
    rest = nbytes - tiles * (BLOCK * LANE)
    mine = tl.maximum(tiles - local + programs - 1, 0) // programs
    has_rest = (rest > 0) & (tiles % programs == local)
    elements = mine * (BLOCK * COUNT) + tl.where(has_rest, rest // SIZE, 0)

    around = tl.zeros([], tl.float64)
    if is_fine(KIND):
        word, other, _, _ = _words(address, nbytes, local * BLOCK, KIND, MISALIGNED)
        around = number_in(word, other, 0, KIND, True).to(tl.float64)
    total, squares, sizes, low, high, zeros, nan, pos, neg = nothing_yet(tl.zeros([BLOCK], tl.int32), KIND)
    hashed = tl.zeros([BLOCK], tl.uint64)
    here = local * BLOCK + lanes
    step = programs * BLOCK
    keys = (here * (LANE // 8) + 1).to(tl.uint64) * _POSITION
    key_step = (step * (LANE // 8)).to(tl.uint64) * _POSITION
    # The words of the next tile are on their way while those of this one are summed up.
    inside = here * 0 + local < tiles
    word = load_words(address, here * (LANE // 8), inside, inside, MISALIGNED)
    other = word
    if KIND == 16:
        other = load_words(address, 2 * here + 1, inside, inside, MISALIGNED)
    for tile in range(local, tiles, programs):
        here += step
        inside = here * 0 + tile + programs < tiles
        next_word = load_words(address, here * (LANE // 8), inside, inside, MISALIGNED)
        next_other = next_word
        if KIND == 16:
            next_other = load_words(address, 2 * here + 1, inside, inside, MISALIGNED)
        hashed += mix(word ^ keys)
        if KIND == 16:
            hashed += mix(other ^ (keys + _POSITION))
        keys += key_step
        total, squares, sizes, low, high, zeros = add_finite(
            word, other, around, total, squares, sizes, low, high, zeros, KIND
        )
        word = next_word
        other = next_other
    if has_rest:
        at = tiles * BLOCK + lanes
        word, other, valid, left = _words(address, nbytes, at, KIND, MISALIGNED)
        hashed += _hashed(word, other, at, left, KIND)
        total, squares, sizes, low, high, zeros, nan, pos, neg = add_checked(
            word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND
        )
    if KIND > 3:
        trusted = (tl.sum(sizes, 0) < _INF) & (tl.abs(around) < _INF)
        if KIND == 17:
            trusted = trusted & (tl.max(high, 0) < E4M3_BEYOND) & (tl.min(low, 0) > -E4M3_BEYOND)
        if not trusted:
            total, squares, sizes, low, high, zeros, nan, pos, neg = nothing_yet(
                tl.zeros([BLOCK], tl.int32), KIND
            )
            around = tl.zeros([], tl.float64)
            unseen = local * 0 == 0
            for tile in range(local, tiles + (rest > 0).to(tl.int64), programs):
                at = tile * BLOCK + lanes
                word, other, valid, left = _words(address, nbytes, at, KIND, MISALIGNED)
                around, unseen = middle(around, unseen, word, other, valid, KIND)
                total, squares, sizes, low, high, zeros, nan, pos, neg = add_checked(
                    word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND
                )
    finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = record(
        elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
    )
    return tl.sum(hashed, 0), finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_


@triton.jit(do_not_specialize=_FLAT_NUMBERS)  # type: ignore[untyped-decorator]
def flat(
    sums: tl.int64, rows: tl.int64, scratch: tl.int64,
    p0: tl.int64, n0: tl.int64, e0: tl.int64, k0: tl.int64,
    p1: tl.int64, n1: tl.int64, e1: tl.int64, k1: tl.int64,
    p2: tl.int64, n2: tl.int64, e2: tl.int64, k2: tl.int64,
    p3: tl.int64, n3: tl.int64, e3: tl.int64, k3: tl.int64,
    p4: tl.int64, n4: tl.int64, e4: tl.int64, k4: tl.int64,
    p5: tl.int64, n5: tl.int64, e5: tl.int64, k5: tl.int64,
    p6: tl.int64, n6: tl.int64, e6: tl.int64, k6: tl.int64,
    p7: tl.int64, n7: tl.int64, e7: tl.int64, k7: tl.int64,
    KINDS: tl.constexpr, MISALIGNED: tl.constexpr, BLOCK: tl.constexpr, ROW: tl.constexpr,
) -> None:  # fmt: skip
    """Up to eight contiguous tensors of n bytes and dtype code k at addresses p; each has programs below e.

    KINDS has a bit for every dtype code among them.
    """
    program = tl.program_id(0).to(tl.int64)
    address, nbytes, first, end, kind, which = p0, n0, e0 * 0, e0, k0, 0
    if program >= e0:
        address, nbytes, first, end, kind, which = p1, n1, e0, e1, k1, 1
    if program >= e1:
        address, nbytes, first, end, kind, which = p2, n2, e1, e2, k2, 2
    if program >= e2:
        address, nbytes, first, end, kind, which = p3, n3, e2, e3, k3, 3
    if program >= e3:
        address, nbytes, first, end, kind, which = p4, n4, e3, e4, k4, 4
    if program >= e4:
        address, nbytes, first, end, kind, which = p5, n5, e4, e5, k5, 5
    if program >= e5:
        address, nbytes, first, end, kind, which = p6, n6, e5, e6, k6, 6
    if program >= e6:
        address, nbytes, first, end, kind, which = p7, n7, e6, e7, k7, 7
    hashed = tl.zeros([], tl.uint64)
    zero = tl.zeros([], tl.float64)
    finite, mean, squares, sizes, low, high = zero, zero, zero, zero, zero, zero
    nan, pos, neg, zeros = zero, zero, zero, zero
    for code in tl.static_range(_KINDS):
        if (KINDS >> code) & 1:  # noqa: SIM102  # known to the compiler, unlike the next
            if kind == code:
                hashed, finite, mean, squares, sizes, low, high, nan, pos, neg, zeros = _share(
                    address, nbytes, program - first, end - first, code, MISALIGNED, BLOCK
                )
    row = rows.to(tl.pointer_type(tl.float64)) + which * ROW
    publish(
        row,
        scratch,
        which,
        program,
        first,
        end,
        finite,
        mean,
        squares,
        sizes,
        low,
        high,
        nan,
        pos,
        neg,
        zeros,
    )
    entry = sums.to(tl.pointer_type(tl.int64)) + which
    tl.atomic_add(entry, hashed.to(tl.int64, bitcast=True), sem="relaxed")


# --- any layout: with care throughout ---


@triton.jit(do_not_specialize=_STRIDED_NUMBERS)  # type: ignore[untyped-decorator]
def strided(
    sums: tl.int64, rows: tl.int64, scratch: tl.int64, base: tl.int64, nbytes: tl.int64,
    size0: tl.int64, stride0: tl.int64, size1: tl.int64, stride1: tl.int64,
    size2: tl.int64, stride2: tl.int64, size3: tl.int64, stride3: tl.int64,
    size4: tl.int64, stride4: tl.int64, size5: tl.int64, stride5: tl.int64,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIMS: tl.constexpr, NUMBER: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One tensor of any layout, described as for the kernel of the same name at level "hash"."""
    SIZE: tl.constexpr = bytes_of(KIND)
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    pieces = (nbytes // WIDTH).to(NUMBER)
    lanes = tl.arange(0, BLOCK)
    tiles = (nbytes + BLOCK * LANE - 1) // (BLOCK * LANE)
    total, squares, sizes, low, high, zeros, nan, pos, neg = nothing_yet(tl.zeros([BLOCK], tl.int32), KIND)
    hashed = tl.zeros([BLOCK], tl.uint64)
    around = tl.zeros([], tl.float64)
    unseen = program * 0 == 0
    elements = tl.zeros([], tl.int64)
    for tile in range(program, tiles, programs):
        here = tile * BLOCK + lanes
        left = tl.minimum(tl.maximum(nbytes - here * LANE, 0), LANE)
        word = tl.zeros([BLOCK], tl.uint64)
        other = tl.zeros([BLOCK], tl.uint64)
        for part in tl.static_range(LANE // WIDTH):
            piece = (here * (LANE // WIDTH) + part).to(NUMBER)
            at = offset(
                piece, size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4,
                stride5, DIMS, NUMBER,
            )  # fmt: skip
            loaded = load(base + at, piece < pieces, WIDTH)
            if part * WIDTH < 8:
                word |= loaded << (8 * WIDTH * part)
            else:
                other |= loaded << (8 * WIDTH * part - 64)
        valid = (left // SIZE).to(tl.int32)
        elements += tl.minimum(nbytes - tile * (BLOCK * LANE), BLOCK * LANE) // SIZE
        hashed += _hashed(word, other, here, left, KIND)
        around, unseen = middle(around, unseen, word, other, valid, KIND)
        total, squares, sizes, low, high, zeros, nan, pos, neg = add_checked(
            word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND
        )
    finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = record(
        elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
    )
    row = rows.to(tl.pointer_type(tl.float64))
    publish(
        row, scratch, 0, program, program * 0, programs, finite, mean, squares_, sizes_, low_, high_, nan_,
        pos_, neg_, zeros_,
    )  # fmt: skip
    tl.atomic_add(
        sums.to(tl.pointer_type(tl.int64)), tl.sum(hashed, 0).to(tl.int64, bitcast=True), sem="relaxed"
    )


@triton.jit(do_not_specialize=_TRANSPOSED_NUMBERS)  # type: ignore[untyped-decorator]
def transposed(
    sums: tl.int64, rows: tl.int64, scratch: tl.int64, base: tl.int64,
    row_words: tl.int64, stride: tl.int64, rows_: tl.int64, rows_apart: tl.int64,
    outer: tl.int64, outer_stride: tl.int64, outer_apart: tl.int64,
    KIND: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
) -> None:  # fmt: skip
    """A tensor whose innermost dimension is not the contiguous one, as for the kernel of the same name."""
    WIDTH: tl.constexpr = bytes_of(KIND)
    COUNT: tl.constexpr = count_of(KIND)
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    # Of tiles there are few enough for 32 bits, in which a division is much cheaper.
    row_tiles = ((rows_ + ROWS - 1) // ROWS).to(tl.int32)
    word_tiles = ((row_words + WORDS - 1) // WORDS).to(tl.int32)
    tiles = row_tiles * word_tiles
    r = tl.arange(0, ROWS).to(tl.int64)[:, None]
    w = tl.arange(0, WORDS).to(tl.int64)[None, :]
    total, squares, sizes, low, high, zeros, nan, pos, neg = nothing_yet(
        tl.zeros([ROWS, WORDS], tl.int32), KIND
    )
    hashed = tl.zeros([ROWS, WORDS], tl.uint64)
    around = tl.zeros([], tl.float64)
    unseen = program * 0 == 0
    counted = tl.zeros([ROWS, WORDS], tl.int64)
    for tile in range(program.to(tl.int32), outer.to(tl.int32) * tiles, programs.to(tl.int32)):
        of_outer = (tile // tiles).to(tl.int64)
        rest = tile % tiles
        row = (rest // word_tiles).to(tl.int64) * ROWS + r
        place = (rest % word_tiles).to(tl.int64) * WORDS + w
        inside = (row < rows_) & (place < row_words)
        word = tl.zeros([ROWS, WORDS], tl.uint64)
        for part in tl.static_range(COUNT):
            at = of_outer * outer_stride + row * WIDTH + (place * COUNT + part) * stride
            word |= load(base + at, inside, WIDTH) << (8 * WIDTH * part)
        index = of_outer * outer_apart + row * rows_apart + place
        hashed += tl.where(inside, mix(word ^ ((index + 1).to(tl.uint64) * _POSITION)), 0)
        valid = tl.where(inside, COUNT, 0)
        counted += valid
        around, unseen = middle(around, unseen, word, word, valid, KIND)
        total, squares, sizes, low, high, zeros, nan, pos, neg = add_checked(
            word, word, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND
        )
    finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = record(
        tl.sum(tl.ravel(counted), 0), around, total, squares, sizes, low, high, zeros, nan, pos, neg
    )
    publish(
        rows.to(tl.pointer_type(tl.float64)), scratch, 0, program, program * 0, programs, finite, mean,
        squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_,
    )  # fmt: skip
    tl.atomic_add(
        sums.to(tl.pointer_type(tl.int64)),
        tl.sum(tl.ravel(hashed), 0).to(tl.int64, bitcast=True),
        sem="relaxed",
    )
