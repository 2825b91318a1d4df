"""What the Triton kernels read words with, and how they mix them."""

from __future__ import annotations

import triton
import triton.language as tl

from kernelscope.fingerprint.definition import MIX_FIRST, MIX_SECOND, SHIFT_FIRST, SHIFT_SECOND

_FIRST = tl.constexpr(MIX_FIRST)
_SECOND = tl.constexpr(MIX_SECOND)
_SHIFT_FIRST = tl.constexpr(SHIFT_FIRST)
_SHIFT_SECOND = tl.constexpr(SHIFT_SECOND)


@triton.jit  # type: ignore[untyped-decorator]
def wait_for_the_one_before(HOPPER: tl.constexpr) -> None:
    """First thing in a kernel that may have been started early: the one before it may still be writing."""
    if HOPPER:
        tl.inline_asm_elementwise(
            "griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def unfolded(product, programs):  # type: ignore[no-untyped-def]
    """The product, as a number that a loop adds: the compiler would multiply once more in every round.

    It does not know that there are fewer programs than 2⁴⁰.
    """
    return product ^ (programs >> 40).to(tl.uint64)


@triton.jit
def mix(h):  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    h = h * _FIRST
    h = h ^ (h >> _SHIFT_FIRST)
    h = h * _SECOND
    return h ^ (h >> _SHIFT_SECOND)


@triton.jit  # type: ignore[untyped-decorator]
def load_words(address, index, inside, above_inside, MISALIGNED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The 64-bit words at these indices from the address on.

    A load must not be misaligned, so two neighbouring words are shifted into one. The bytes that are read
    beyond the ends then lie in words that the tensor has a part of.
    """
    if not MISALIGNED:
        return tl.load(address.to(tl.pointer_type(tl.uint64)) + index, mask=inside, other=0)
    source = (address - address % 8).to(tl.pointer_type(tl.uint64)) + index
    shift = (address % 8).to(tl.uint64) * 8
    word = tl.load(source, mask=inside, other=0)
    if shift > 0:
        above = tl.load(source + 1, mask=above_inside, other=0)
        word = (word >> shift) | (above << (64 - shift))
    return word


@triton.jit  # type: ignore[untyped-decorator]
def load(address, inside, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    if WIDTH == 8:
        return tl.load(address.to(tl.pointer_type(tl.uint64)), mask=inside, other=0)
    if WIDTH == 4:
        return tl.load(address.to(tl.pointer_type(tl.uint32)), mask=inside, other=0).to(tl.uint64)
    if WIDTH == 2:
        return tl.load(address.to(tl.pointer_type(tl.uint16)), mask=inside, other=0).to(tl.uint64)
    return tl.load(address.to(tl.pointer_type(tl.uint8)), mask=inside, other=0).to(tl.uint64)


@triton.jit  # type: ignore[untyped-decorator]
def offset(  # type: ignore[no-untyped-def]
    piece, size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4, stride5,
    DIMS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """How many bytes after the base a piece lies, innermost dimension first."""
    rest = piece
    if DIMS == 1:
        return rest.to(tl.int64) * stride0
    at = (rest % size0.to(NUMBER)).to(tl.int64) * stride0
    rest = rest // size0.to(NUMBER)
    if DIMS == 2:
        return at + rest.to(tl.int64) * stride1
    at += (rest % size1.to(NUMBER)).to(tl.int64) * stride1
    rest = rest // size1.to(NUMBER)
    if DIMS == 3:
        return at + rest.to(tl.int64) * stride2
    at += (rest % size2.to(NUMBER)).to(tl.int64) * stride2
    rest = rest // size2.to(NUMBER)
    if DIMS == 4:
        return at + rest.to(tl.int64) * stride3
    at += (rest % size3.to(NUMBER)).to(tl.int64) * stride3
    rest = rest // size3.to(NUMBER)
    at += (rest % size4.to(NUMBER)).to(tl.int64) * stride4
    return at + (rest // size4.to(NUMBER)).to(tl.int64) * stride5
