"""Running sums of the Triton kernels for statistics.

Sums go around an element where a dtype is so fine that Σx² − (Σx)²/n would cancel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .numbers import count_of, is_fine, is_wide, number_in

_INF = tl.constexpr(float("inf"))
_MOST = tl.constexpr((1 << 31) - 1)
_LOWER = tl.constexpr((1 << 32) - 1)
_UPPER = tl.constexpr(-1 << 27)  # of the bits of a float64: it keeps 26 digits

# In PTX: smaller and larger ones of two numbers each, and how many of these are zero.
_COMPARE = """{{
            .reg .pred p, q;
            .reg .b32 nothing;
            mov.b32 nothing, 0;
            min.{0} $0, $4, $3;
            max.{0} $1, $5, $3;
            setp.eq.{0} p|q, $3, nothing;
            mov.b32 $2, $6;
            @p add.s32 $2, $2, 1;
            @q add.s32 $2, $2, 1;
            }}"""
_COMPARE_F16 = tl.constexpr(_COMPARE.format("f16x2"))
_COMPARE_BF16 = tl.constexpr(_COMPARE.format("bf16x2"))


@triton.jit  # type: ignore[untyped-decorator]
def add_finite(  # type: ignore[no-untyped-def]
    word, other, around, total, squares, sizes, low, high, zeros, KIND: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Words full of numbers that are finite, or else `sizes` becomes infinite or NaN.

    PACKED, `low` and `high` are as `pack` gives them.
    """
    if PACKED and count_of(KIND) == 8:
        lower, upper = _as_float16(word, KIND)
        total, squares, sizes, low, high, zeros = add_finite(
            lower, lower, around, total, squares, sizes, low, high, zeros, 10, True
        )
        return add_finite(upper, upper, around, total, squares, sizes, low, high, zeros, 10, True)
    if PACKED:
        low, high, zeros = _two(word.to(tl.uint32), low, high, zeros, KIND)
        low, high, zeros = _two((word >> 32).to(tl.uint32), low, high, zeros, KIND)
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
        if not PACKED:
            low = tl.minimum(low, x)
            high = tl.maximum(high, x)
            zeros += (x == 0).to(tl.int32)
    return total, squares, sizes, low, high, zeros


@triton.constexpr_function  # type: ignore[untyped-decorator]
def can_be_packed(kind: int) -> bool:
    """Whether Hopper compares two of them at once: numbers of two bytes, and what fits into float16."""
    return kind in (10, 11, 17, 18)


@triton.jit  # type: ignore[untyped-decorator]
def pack(low, high, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Infinities, as `nothing_yet` begins with, two in a word of 32 bits."""
    if KIND == 11:
        infinity = 0x7F807F80
    else:
        infinity = 0x7C007C00
    bits = low.to(tl.uint32, bitcast=True) * 0 + infinity
    return bits, bits | 0x80008000


@triton.jit  # type: ignore[untyped-decorator]
def unpack(low, high, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    HALF: tl.constexpr = 11 if KIND == 11 else 10
    low = low.to(tl.uint64)
    high = high.to(tl.uint64)
    return (
        tl.minimum(number_in(low, low, 0, HALF, False), number_in(low, low, 1, HALF, False)),
        tl.maximum(number_in(high, high, 0, HALF, False), number_in(high, high, 1, HALF, False)),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _as_float16(word, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Eight numbers of a byte as two words of four."""
    if KIND == 17:
        lower, upper = tl.inline_asm_elementwise(
            """{
            .reg .b16 a, b, c, d;
            .reg .b32 e, f, g, h;
            mov.b64 {a, b, c, d}, $2;
            cvt.rn.f16x2.e4m3x2 e, a;
            cvt.rn.f16x2.e4m3x2 f, b;
            cvt.rn.f16x2.e4m3x2 g, c;
            cvt.rn.f16x2.e4m3x2 h, d;
            mov.b64 $0, {e, f};
            mov.b64 $1, {g, h};
            }""",
            "=&l,=&l,l", [word], dtype=(tl.uint64, tl.uint64), is_pure=True, pack=1,
        )  # fmt: skip
    else:  # float8_e5m2 is the upper half of a float16
        lower, upper = tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, e, f, g, h;
            mov.b64 {a, b}, $2;
            prmt.b32 e, a, 0, 0x1404;
            prmt.b32 f, a, 0, 0x3424;
            prmt.b32 g, b, 0, 0x1404;
            prmt.b32 h, b, 0, 0x3424;
            mov.b64 $0, {e, f};
            mov.b64 $1, {g, h};
            }""",
            "=&l,=&l,l", [word], dtype=(tl.uint64, tl.uint64), is_pure=True, pack=1,
        )  # fmt: skip
    return lower, upper


@triton.jit  # type: ignore[untyped-decorator]
def _two(pair, low, high, zeros, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Two numbers compared at once."""
    COMPARE: tl.constexpr = _COMPARE_F16 if KIND == 10 else _COMPARE_BF16
    low, high, zeros = tl.inline_asm_elementwise(
        COMPARE, "=&r,=&r,=&r,r,r,r,r", [pair, low, high, zeros],
        dtype=(tl.uint32, tl.uint32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    return low, high, zeros


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
            largest = tl.max(found, 0)
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
def _joined(  # type: ignore[no-untyped-def]
    total, squares, sizes, low, high, few, many, hashed,
    total_, squares_, sizes_, low_, high_, few_, many_, hashed_,
):  # fmt: skip
    return (
        total + total_, squares + squares_, sizes + sizes_, tl.minimum(low, low_), tl.maximum(high, high_),
        few + few_, many + many_, hashed + hashed_,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def recorded(  # type: ignore[no-untyped-def]
    elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg, hashed, KIND: tl.constexpr
):
    """What one program found: the sum of the definition, and the record, in float64.

    All lanes are joined at once, two counts in a word: each by itself would have to be waited for.
    """
    few = nan.to(tl.int64) | (zeros.to(tl.int64) << 32)
    many = pos.to(tl.int64) | (neg.to(tl.int64) << 32)
    total, squares, sizes, low, high, few, many, hashed = tl.reduce(
        (total.to(tl.float64), squares.to(tl.float64), sizes.to(tl.float64), low, high, few, many, hashed),
        0,
        _joined,
    )
    nan = (few & _LOWER).to(tl.float64)
    zeros = (few >> 32).to(tl.float64)
    pos = (many & _LOWER).to(tl.float64)
    neg = (many >> 32).to(tl.float64)
    finite = elements.to(tl.float64) - nan - pos - neg
    some = tl.maximum(finite, 1.0)
    mean = around + total / some
    if is_fine(KIND):
        squares = squares - total * (total / some)
    else:
        squares = _without_mean(some, total, squares)
    squares = tl.maximum(squares, 0.0)
    return hashed, (
        finite,
        mean,
        squares,
        sizes,
        low.to(tl.float64),
        high.to(tl.float64),
        nan,
        pos,
        neg,
        zeros,
    )


@triton.jit
def _without_mean(count, total, squares):  # type: ignore[no-untyped-def]
    """Σx² − (Σx)²/n of numbers that have so few digits that both sums are exact where they nearly cancel.

    Around a number near the mean that has few digits as well: then no product is rounded.
    """
    near = _upper(total / count)
    apart = total - count * near
    twice = total + apart
    upper = _upper(twice)
    squares = (squares - near * upper) - near * (twice - upper)
    return squares - apart * (apart / count)


@triton.jit
def _upper(x):  # type: ignore[no-untyped-def]
    return (x.to(tl.int64, bitcast=True) & _UPPER).to(tl.float64, bitcast=True)
