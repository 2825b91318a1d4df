"""The Triton kernels of level "stats". Imported only where there is a GPU.

A tensor is cut into shares, and where the cuts lie depends on its size alone. A program sums up one share, in
lanes that each go through their elements in order, and leaves a record; the program that finishes last merges the
records in order. So the same tensor gives the same numbers, whatever ran first.

Sums go around an element of the share where a dtype is so fine that Σx² − (Σx)²/n would cancel. Full tiles are
summed up as if every number were finite; when that turns out wrong, the share is gone through again with care.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .cuda_kernels import load, load_words, mix, offset
from .definition import POSITION

_POSITION = tl.constexpr(POSITION)
_INF = tl.constexpr(float("inf"))
_NAN = tl.constexpr(float("nan"))
_MOST = tl.constexpr((1 << 31) - 1)
_KINDS = tl.constexpr(43)  # dtype codes are smaller
# Of bytes as numbers: 2^120 and 2^112 make up for the wider exponent of a float32.
_E4M3_SCALE = tl.constexpr(2.0**120)
_E4M3_BEYOND = tl.constexpr(480.0)  # what the pattern of its NaN would be worth

TENSORS_AT_ONCE = 8
RECORD = 10  # float64 numbers of a record
_RECORD = tl.constexpr(RECORD)
COUNTERS = 8  # 64-bit words before the records
_COUNTERS = tl.constexpr(COUNTERS)
_MERGED_AT_ONCE = tl.constexpr(512)

_PLACES = ["sums", "rows", "scratch"]
_FLAT_NUMBERS = _PLACES + [f"{what}{i}" for i in range(TENSORS_AT_ONCE) for what in "pnek"]
_STRIDED_NUMBERS = [*_PLACES, "base", "nbytes"]
_STRIDED_NUMBERS += [f"{what}{i}" for i in range(6) for what in ("size", "stride")]
_TRANSPOSED_NUMBERS = [
    *_PLACES,
    *("base", "row_words", "stride", "rows_", "rows_apart", "outer", "outer_stride", "outer_apart"),
]


# --- one element of a word, by dtype code ---


@triton.jit  # type: ignore[untyped-decorator]
def _number(word, other, J: tl.constexpr, KIND: tl.constexpr, CHECKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Element J of these words: int32 for integers of one byte, else float32, or float64 where that is finer.

    `other` is the second word of a complex128. Not CHECKED, a NaN of float8_e4m3fn comes out as ±480.
    """
    if KIND == 16:
        return _distance(word.to(tl.float64, bitcast=True), other.to(tl.float64, bitcast=True))
    if KIND == 15:
        return _size(_part(word, 0, 12), _part(word, 1, 12))
    if KIND == 14:
        return _size(_part(word, 2 * J, 10), _part(word, 2 * J + 1, 10))
    if KIND == 42:
        return _size(_part(word, 2 * J, 11), _part(word, 2 * J + 1, 11))
    if KIND == 13:
        return word.to(tl.float64, bitcast=True)
    if KIND == 9:
        return word.to(tl.int64, bitcast=True).to(tl.float64)
    if KIND == 8:
        return word.to(tl.float64)
    if (KIND == 4) or (KIND == 5) or (KIND == 6) or (KIND == 7) or (KIND == 10) or (KIND == 11) or (KIND == 12):
        return _part(word, J, KIND)
    half = (word >> 32).to(tl.uint32) if J >= 4 else word.to(tl.uint32)
    byte = (half >> (8 * (J % 4))) & 0xFF
    if KIND == 1:
        return (byte != 0).to(tl.int32)
    if KIND == 2:
        return byte.to(tl.int32)
    if KIND == 3:
        return (byte << 24).to(tl.int32, bitcast=True) >> 24
    if KIND == 18:  # float8_e5m2: the upper half of a float16
        return (byte << 8).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    if KIND == 21:  # float8_e8m0fnu: an exponent
        power = tl.where(byte == 0, 1 << 22, byte << 23).to(tl.uint32).to(tl.float32, bitcast=True)
        return tl.where(byte == 255, _NAN, power)
    sign = (byte & 0x80) << 24
    if KIND == 20:  # float8_e5m2fnuz: bias 16
        number = ((byte & 0x7F) << 21).to(tl.float32, bitcast=True) * (2.0**111)
    elif KIND == 19:  # float8_e4m3fnuz: bias 8
        number = ((byte & 0x7F) << 20).to(tl.float32, bitcast=True) * (2.0**119)
    else:  # 17, float8_e4m3fn
        number = ((byte & 0x7F) << 20).to(tl.float32, bitcast=True) * _E4M3_SCALE
    number = (number.to(tl.uint32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    if KIND == 17:
        return tl.where((byte & 0x7F) == 0x7F, _NAN, number) if CHECKED else number
    return tl.where(byte == 0x80, _NAN, number)


@triton.jit  # type: ignore[untyped-decorator]
def _part(word, J: tl.constexpr, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Element J of two or four in a word."""
    if (KIND == 6) or (KIND == 7) or (KIND == 12):
        half = (word >> 32).to(tl.uint32) if J >= 1 else word.to(tl.uint32)
        if KIND == 6:
            return half.to(tl.float64)
        if KIND == 7:
            return half.to(tl.int32, bitcast=True).to(tl.float64)
        return half.to(tl.float32, bitcast=True)
    half = (word >> 32).to(tl.uint32) if J >= 2 else word.to(tl.uint32)
    upper = half & 0xFFFF0000 if J % 2 else half << 16
    if KIND == 11:
        return upper.to(tl.float32, bitcast=True)
    if KIND == 5:
        return (upper.to(tl.int32, bitcast=True) >> 16).to(tl.float32)
    short = upper >> 16
    if KIND == 4:
        return short.to(tl.float32)
    return short.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _size(re, im):  # type: ignore[no-untyped-def]
    """The absolute value of a complex number whose squares are exact in float64."""
    re = re.to(tl.float64)
    im = im.to(tl.float64)
    return tl.sqrt(re * re + im * im)


@triton.jit  # type: ignore[untyped-decorator]
def _distance(re, im):  # type: ignore[no-untyped-def]
    """The absolute value of a complex128, without an overflow on the way; NaN when a part is."""
    either = (re != re) | (im != im)
    re = tl.abs(re)
    im = tl.abs(im)
    long = tl.maximum(re, im)
    short = tl.minimum(re, im)
    ratio = tl.where(long == 0.0, 0.0, short / long)
    size = tl.where(long == _INF, _INF, long * tl.sqrt(1.0 + ratio * ratio))
    return tl.where(either, _NAN, size)


# --- running sums ---


@triton.jit  # type: ignore[untyped-decorator]
def _add_finite(  # type: ignore[no-untyped-def]
    word, other, around, total, squares, sizes, low, high, zeros, KIND: tl.constexpr, SHIFTED: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Words full of numbers that are finite, or else `sizes` becomes infinite or NaN."""
    for j in tl.static_range(COUNT):
        x = _number(word, other, j, KIND, False)
        if KIND <= 3:
            total += x
            squares += x * x
            sizes += tl.abs(x)
        else:
            wide = x.to(tl.float64)
            away = wide - around if SHIFTED else wide
            total += away
            squares += away * away
            sizes += tl.abs(wide)
        low = tl.minimum(low, x)
        high = tl.maximum(high, x)
        zeros += (x == 0).to(tl.int32)
    return total, squares, sizes, low, high, zeros


@triton.jit  # type: ignore[untyped-decorator]
def _add_checked(  # type: ignore[no-untyped-def]
    word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND: tl.constexpr,
    SHIFTED: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """The first `valid` numbers of each word, whatever they are."""
    for j in tl.static_range(COUNT):
        x = _number(word, other, j, KIND, True)
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
            away = tl.where(finite, wide - around if SHIFTED else wide, 0.0)
            total += away
            squares += away * away
            sizes += tl.where(finite, tl.abs(wide), 0.0)
            low = tl.minimum(low, tl.where(finite, x, _INF))
            high = tl.maximum(high, tl.where(finite, x, -_INF))
            zeros += (here & (x == 0)).to(tl.int32)
    return total, squares, sizes, low, high, zeros, nan, pos, neg


@triton.jit  # type: ignore[untyped-decorator]
def _largest_finite(word, other, valid, KIND: tl.constexpr, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """As float64, or minus infinity when none is finite."""
    found = tl.full(word.shape, -_INF, tl.float64)
    for j in tl.static_range(COUNT):
        x = _number(word, other, j, KIND, True)
        ok = (valid > j) & (tl.abs(x) < _INF)
        found = tl.maximum(found, tl.where(ok, x.to(tl.float64), -_INF))
    return tl.max(tl.ravel(found), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _nothing_yet(SHAPE: tl.constexpr, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """total, squares, sizes, low, high, zeros, nan, pos, neg"""
    count = tl.zeros(SHAPE, tl.int32)
    if KIND <= 3:
        number = tl.zeros(SHAPE, tl.int32)
        least = tl.full(SHAPE, _MOST, tl.int32)
        return number, number, number, least, -least, count, count, count, count
    number = tl.zeros(SHAPE, tl.float64)
    if (
        (KIND == 6) or (KIND == 7) or (KIND == 8) or (KIND == 9) or (KIND == 13) or (KIND == 14) or (KIND == 15)
        or (KIND == 16) or (KIND == 42)
    ):  # fmt: skip
        least = tl.full(SHAPE, _INF, tl.float64)
    else:
        least = tl.full(SHAPE, _INF, tl.float32)
    return number, number, number, least, -least, count, count, count, count


@triton.jit  # type: ignore[untyped-decorator]
def _record(  # type: ignore[no-untyped-def]
    elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
):
    """What one program found: counts, then the mean, the squared distances from it, and the rest, in float64."""
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


@triton.jit  # type: ignore[untyped-decorator]
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


@triton.jit  # type: ignore[untyped-decorator]
def _publish(  # type: ignore[no-untyped-def]
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


@triton.jit  # type: ignore[untyped-decorator]
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


# --- contiguous tensors ---


@triton.jit  # type: ignore[untyped-decorator]
def _words_and_valid(  # type: ignore[no-untyped-def]
    address, nbytes, here, KIND: tl.constexpr, SIZE: tl.constexpr, MISALIGNED: tl.constexpr
):
    """Word number `here` (and the next, of a complex128), without bytes beyond the end; how many numbers."""
    if KIND == 16:
        left = tl.minimum(tl.maximum(nbytes - here * 16, 0), 16)
        inside = left > 0
        word = load_words(address, 2 * here, inside, inside, MISALIGNED)
        other = load_words(address, 2 * here + 1, inside, inside, MISALIGNED)
        return word, other, (left // 16).to(tl.int32), left
    left = tl.minimum(tl.maximum(nbytes - here * 8, 0), 8)
    word = load_words(address, here, left > 0, address % 8 + left > 8, MISALIGNED)
    bits = (tl.minimum(left, 7) * 8).to(tl.uint64)
    kept = word & ((bits * 0 + 1 << bits) - 1)
    word = tl.where(left == 8, word, kept)
    return word, word, (left // SIZE).to(tl.int32), left


@triton.jit  # type: ignore[untyped-decorator]
def _hashed(word, other, here, left, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    if KIND == 16:
        first = mix(word ^ ((2 * here + 1).to(tl.uint64) * _POSITION))
        second = mix(other ^ ((2 * here + 2).to(tl.uint64) * _POSITION))
        return tl.where(left > 0, first + second, 0)
    return tl.where(left > 0, mix(word ^ ((here + 1).to(tl.uint64) * _POSITION)), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _share(  # type: ignore[no-untyped-def]
    address, nbytes, local, programs, KIND: tl.constexpr, MISALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of the definition and the record of every programs-th tile, from number `local` on."""
    SIZE: tl.constexpr = _bytes_of(KIND)
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    COUNT: tl.constexpr = LANE // SIZE
    SHIFTED: tl.constexpr = _is_fine(KIND)
    lanes = tl.arange(0, BLOCK)
    tiles = nbytes // (BLOCK * LANE)  # full ones
    rest = nbytes - tiles * (BLOCK * LANE)
    mine = tl.maximum(tiles - local + programs - 1, 0) // programs
    has_rest = (rest > 0) & (tiles % programs == local)
    elements = mine * (BLOCK * COUNT) + tl.where(has_rest, rest // SIZE, 0)

    around = tl.zeros([], tl.float64)
    if SHIFTED:
        word, other, _, _ = _words_and_valid(address, nbytes, local * BLOCK, KIND, SIZE, MISALIGNED)
        around = _number(word, other, 0, KIND, True).to(tl.float64)
    total, squares, sizes, low, high, zeros, nan, pos, neg = _nothing_yet([BLOCK], KIND)
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
        total, squares, sizes, low, high, zeros = _add_finite(
            word, other, around, total, squares, sizes, low, high, zeros, KIND, SHIFTED, COUNT
        )
        word = next_word
        other = next_other
    if has_rest:
        at = tiles * BLOCK + lanes
        word, other, valid, left = _words_and_valid(address, nbytes, at, KIND, SIZE, MISALIGNED)
        hashed += _hashed(word, other, at, left, KIND)
        total, squares, sizes, low, high, zeros, nan, pos, neg = _add_checked(
            word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND, SHIFTED, COUNT
        )
    if KIND > 3:
        trusted = (tl.sum(sizes, 0) < _INF) & (tl.abs(around) < _INF)
        if KIND == 17:
            trusted = trusted & (tl.max(high, 0) < _E4M3_BEYOND) & (tl.min(low, 0) > -_E4M3_BEYOND)
        if not trusted:
            total, squares, sizes, low, high, zeros, nan, pos, neg = _nothing_yet([BLOCK], KIND)
            around = tl.zeros([], tl.float64)
            unseen = local * 0 == 0
            for tile in range(local, tiles + (rest > 0).to(tl.int64), programs):
                at = tile * BLOCK + lanes
                word, other, valid, left = _words_and_valid(address, nbytes, at, KIND, SIZE, MISALIGNED)
                if SHIFTED:
                    if unseen:
                        found = _largest_finite(word, other, valid, KIND, COUNT)
                        if found > -_INF:
                            around = found
                            unseen = local * 0 != 0
                total, squares, sizes, low, high, zeros, nan, pos, neg = _add_checked(
                    word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND,
                    SHIFTED, COUNT,
                )  # fmt: skip
    finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = _record(
        elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
    )
    return tl.sum(hashed, 0), finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_


@triton.constexpr_function  # type: ignore[untyped-decorator]
def _bytes_of(kind: int) -> int:
    if kind <= 3 or 17 <= kind <= 21:
        return 1
    if kind in (4, 5, 10, 11):
        return 2
    if kind in (6, 7, 12, 14, 42):
        return 4
    return 16 if kind == 16 else 8


@triton.constexpr_function  # type: ignore[untyped-decorator]
def _is_fine(kind: int) -> bool:
    """Whether so many bits make up a number that sums of squares would cancel in float64."""
    return kind in (6, 7, 8, 9, 12, 13, 14, 15, 16, 42)


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
    """Up to eight contiguous tensors of n bytes and dtype code k at addresses p; each has the programs below e.

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
        if (KINDS >> code) & 1:
            if kind == code:
                hashed, finite, mean, squares, sizes, low, high, nan, pos, neg, zeros = _share(
                    address, nbytes, program - first, end - first, code, MISALIGNED, BLOCK
                )
    row = rows.to(tl.pointer_type(tl.float64)) + which * ROW
    _publish(
        row, scratch, which, program, first, end, finite, mean, squares, sizes, low, high, nan, pos, neg, zeros
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
    SIZE: tl.constexpr = _bytes_of(KIND)
    WORDS: tl.constexpr = 2 if KIND == 16 else 1
    LANE: tl.constexpr = 8 * WORDS
    COUNT: tl.constexpr = LANE // SIZE
    SHIFTED: tl.constexpr = _is_fine(KIND)
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    pieces = (nbytes // WIDTH).to(NUMBER)
    lanes = tl.arange(0, BLOCK)
    tiles = (nbytes + BLOCK * LANE - 1) // (BLOCK * LANE)
    total, squares, sizes, low, high, zeros, nan, pos, neg = _nothing_yet([BLOCK], KIND)
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
                piece, size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4, stride5,
                DIMS, NUMBER,
            )  # fmt: skip
            loaded = load(base + at, piece < pieces, WIDTH)
            if part * WIDTH < 8:
                word |= loaded << (8 * WIDTH * part)
            else:
                other |= loaded << (8 * WIDTH * part - 64)
        valid = (left // SIZE).to(tl.int32)
        elements += tl.minimum(nbytes - tile * (BLOCK * LANE), BLOCK * LANE) // SIZE
        hashed += _hashed(word, other, here, left, KIND)
        if SHIFTED:
            if unseen:
                found = _largest_finite(word, other, valid, KIND, COUNT)
                if found > -_INF:
                    around = found
                    unseen = program * 0 != 0
        total, squares, sizes, low, high, zeros, nan, pos, neg = _add_checked(
            word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND, SHIFTED, COUNT
        )
    finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = _record(
        elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
    )
    row = rows.to(tl.pointer_type(tl.float64))
    _publish(
        row, scratch, 0, program, program * 0, programs, finite, mean, squares_, sizes_, low_, high_, nan_, pos_,
        neg_, zeros_,
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
    WIDTH: tl.constexpr = _bytes_of(KIND)
    COUNT: tl.constexpr = 8 // WIDTH
    SHIFTED: tl.constexpr = _is_fine(KIND)
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    row_tiles = (rows_ + ROWS - 1) // ROWS
    word_tiles = (row_words + WORDS - 1) // WORDS
    r = tl.arange(0, ROWS).to(tl.int64)[:, None]
    w = tl.arange(0, WORDS).to(tl.int64)[None, :]
    total, squares, sizes, low, high, zeros, nan, pos, neg = _nothing_yet([ROWS, WORDS], KIND)
    hashed = tl.zeros([ROWS, WORDS], tl.uint64)
    around = tl.zeros([], tl.float64)
    unseen = program * 0 == 0
    elements = tl.zeros([], tl.int64)
    for tile in range(program, outer * row_tiles * word_tiles, programs):
        of_outer = tile // (row_tiles * word_tiles)
        rest = tile - of_outer * (row_tiles * word_tiles)
        row = (rest // word_tiles) * ROWS + r
        place = (rest % word_tiles) * WORDS + w
        inside = (row < rows_) & (place < row_words)
        word = tl.zeros([ROWS, WORDS], tl.uint64)
        for part in tl.static_range(COUNT):
            at = of_outer * outer_stride + row * WIDTH + (place * COUNT + part) * stride
            word |= load(base + at, inside, WIDTH) << (8 * WIDTH * part)
        index = of_outer * outer_apart + row * rows_apart + place
        hashed += tl.where(inside, mix(word ^ ((index + 1).to(tl.uint64) * _POSITION)), 0)
        valid = tl.where(inside, COUNT, 0)
        elements += tl.sum(tl.ravel(valid).to(tl.int64), 0)
        if SHIFTED:
            if unseen:
                found = _largest_finite(word, word, valid, KIND, COUNT)
                if found > -_INF:
                    around = found
                    unseen = program * 0 != 0
        total, squares, sizes, low, high, zeros, nan, pos, neg = _add_checked(
            word, word, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND, SHIFTED, COUNT
        )
    finite, mean, squares_, sizes_, low_, high_, nan_, pos_, neg_, zeros_ = _record(
        elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg
    )
    _publish(
        rows.to(tl.pointer_type(tl.float64)), scratch, 0, program, program * 0, programs, finite, mean, squares_,
        sizes_, low_, high_, nan_, pos_, neg_, zeros_,
    )  # fmt: skip
    tl.atomic_add(
        sums.to(tl.pointer_type(tl.int64)), tl.sum(tl.ravel(hashed), 0).to(tl.int64, bitcast=True), sem="relaxed"
    )
