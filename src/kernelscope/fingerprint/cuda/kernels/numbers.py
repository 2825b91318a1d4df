"""Numbers out of the 64-bit words that the CUDA kernels read, by dtype code (see definition.py)."""

from __future__ import annotations

import triton
import triton.language as tl

_INF = tl.constexpr(float("inf"))
# There is no global for NaN: Triton compares the globals of kernels that call each other, and NaN != NaN.
_E4M3FN, _E4M3FNUZ, _E5M2FNUZ = tl.constexpr(2.0**120), tl.constexpr(2.0**119), tl.constexpr(2.0**111)
# What the pattern of a NaN in float8_e4m3fn would be worth.
E4M3_BEYOND = tl.constexpr(480.0)


@triton.constexpr_function  # type: ignore[untyped-decorator]
def bytes_of(kind: int) -> int:
    if kind <= 3 or 17 <= kind <= 21:
        return 1
    if kind in (4, 5, 10, 11):
        return 2
    if kind in (6, 7, 12, 14, 42):
        return 4
    return 16 if kind == 16 else 8


@triton.constexpr_function  # type: ignore[untyped-decorator]
def count_of(kind: int) -> int:
    """Numbers in the words that are looked at together: one word, or both of a complex128."""
    return 1 if kind == 16 else 8 // bytes_of(kind)


@triton.constexpr_function  # type: ignore[untyped-decorator]
def is_wide(kind: int) -> bool:
    """Whether `_number` gives float64."""
    return kind in (6, 7, 8, 9, 13, 14, 15, 16, 42)


@triton.constexpr_function  # type: ignore[untyped-decorator]
def is_fine(kind: int) -> bool:
    """Whether so many bits make up a number that sums of squares would cancel in float64."""
    return kind == 12 or kind in (6, 7, 8, 9, 13, 14, 15, 16, 42)


# --- one element of a word ---


# One `return` each: Triton wants the same type from every one, also from those that a constant rules out.


@triton.jit  # type: ignore[untyped-decorator]
def number_in(word, other, J: tl.constexpr, KIND: tl.constexpr, CHECKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Element J of these words: int32 for integers of one byte, else float32, or float64 where that is finer.

    `other` is the second word of a complex128. Not CHECKED, a NaN of float8_e4m3fn comes out as ±480.
    """
    if KIND == 16:
        number = _distance(word.to(tl.float64, bitcast=True), other.to(tl.float64, bitcast=True))
    elif KIND == 15:
        number = _size(_part(word, 0, 12), _part(word, 1, 12))
    elif KIND == 14:
        number = _size(_part(word, 2 * J, 10), _part(word, 2 * J + 1, 10))
    elif KIND == 42:
        number = _size(_part(word, 2 * J, 11), _part(word, 2 * J + 1, 11))
    elif KIND == 13:
        number = word.to(tl.float64, bitcast=True)
    elif KIND == 9:
        number = word.to(tl.int64, bitcast=True).to(tl.float64)
    elif KIND == 8:
        number = word.to(tl.float64)
    elif bytes_of(KIND) > 1:
        number = _part(word, J, KIND)
    else:
        number = _byte(_half(word, J >= 4) << (24 - 8 * (J % 4)), KIND, CHECKED)
    return number


@triton.jit  # type: ignore[untyped-decorator]
def _half(word, UPPER: tl.constexpr):  # type: ignore[no-untyped-def]
    if UPPER:
        half = (word >> 32).to(tl.uint32)
    else:
        half = word.to(tl.uint32)
    return half


@triton.jit  # type: ignore[untyped-decorator]
def _part(word, J: tl.constexpr, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Element J of two or four in a word."""
    if KIND == 6:
        number = _half(word, J >= 1).to(tl.float64)
    elif KIND == 7:
        number = _half(word, J >= 1).to(tl.int32, bitcast=True).to(tl.float64)
    elif KIND == 12:
        number = _half(word, J >= 1).to(tl.float32, bitcast=True)
    else:
        if J % 2:
            upper = _half(word, J >= 2) & 0xFFFF0000
        else:
            upper = _half(word, J >= 2) << 16
        if KIND == 11:
            number = upper.to(tl.float32, bitcast=True)
        elif KIND == 5:
            number = (upper.to(tl.int32, bitcast=True) >> 16).to(tl.float32)
        elif KIND == 4:
            number = (upper >> 16).to(tl.float32)
        else:
            number = (upper >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    return number


@triton.jit  # type: ignore[untyped-decorator]
def _byte(byte_up, KIND: tl.constexpr, CHECKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The highest byte of a uint32 as a number; what is below it does not count."""
    byte = byte_up >> 24
    if KIND == 1:
        number = (byte != 0).to(tl.int32)
    elif KIND == 2:
        number = byte.to(tl.int32)
    elif KIND == 3:
        number = byte_up.to(tl.int32, bitcast=True) >> 24
    elif KIND == 18:  # float8_e5m2: the upper half of a float16
        number = (byte << 8).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    elif KIND == 21:  # float8_e8m0fnu: an exponent
        number = tl.where(byte == 0, 1 << 22, byte << 23).to(tl.uint32).to(tl.float32, bitcast=True)
        number = tl.where(byte == 255, float("nan"), number)
    else:
        # In place the bits mean a float32 that a power of two has to make larger, subnormal or not.
        if KIND == 20:  # float8_e5m2fnuz
            bits = (byte_up.to(tl.int32, bitcast=True) >> 3).to(tl.uint32, bitcast=True) & 0x8FE00000
            number = bits.to(tl.float32, bitcast=True) * _E5M2FNUZ
        else:
            bits = (byte_up.to(tl.int32, bitcast=True) >> 4).to(tl.uint32, bitcast=True) & 0x87F00000
            if KIND == 19:  # float8_e4m3fnuz
                number = bits.to(tl.float32, bitcast=True) * _E4M3FNUZ
            else:  # float8_e4m3fn
                number = bits.to(tl.float32, bitcast=True) * _E4M3FN
        if KIND != 17:
            number = tl.where(byte == 0x80, float("nan"), number)
        elif CHECKED:
            number = tl.where((byte & 0x7F) == 0x7F, float("nan"), number)
    return number


@triton.jit
def _size(re, im):  # type: ignore[no-untyped-def]
    """The absolute value of a complex number whose squares are exact in float64."""
    re = re.to(tl.float64)
    im = im.to(tl.float64)
    return tl.sqrt(re * re + im * im)


@triton.jit
def _distance(re, im):  # type: ignore[no-untyped-def]
    """The absolute value of a complex128, without an overflow on the way; NaN when a part is."""
    either = (re != re) | (im != im)
    re = tl.abs(re)
    im = tl.abs(im)
    long = tl.maximum(re, im)
    short = tl.minimum(re, im)
    ratio = tl.where(long == 0.0, 0.0, short / long)
    size = tl.where(long == _INF, _INF, long * tl.sqrt(1.0 + ratio * ratio))
    return tl.where(either, float("nan"), size)
