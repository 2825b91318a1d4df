"""Extents, known now or when the program runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span

_MOST = 1 << 48  # elements


@dataclass(frozen=True, slots=True)
class Dim:
    """A number, or a C++ expression for one."""

    value: int | None
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def atom(self) -> str:
        """The text, safe beside any operator."""
        simple = self.value is not None or self.text.isidentifier()
        return self.text if simple else f"({self.text})"


def dim(value: int | str) -> Dim:
    return Dim(value, str(value)) if isinstance(value, int) else Dim(None, value)


ZERO, ONE = dim(0), dim(1)


def add(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value is not None:
        return dim(a.value + b.value)
    if a.value == 0:
        return b
    return a if b.value == 0 else Dim(None, f"{a.text} + {b.atom}")


def sub(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value is not None:
        return dim(a.value - b.value)
    return a if b.value == 0 else Dim(None, f"{a.text} - {b.atom}")


def mul(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value is not None:
        return dim(a.value * b.value)
    if a.value == 0 or b.value == 0:
        return ZERO
    if a.value == 1:
        return b
    return a if b.value == 1 else Dim(None, f"{a.atom} * {b.atom}")


def _quotient(a: int, b: int) -> int:
    """Towards zero, as in the C++ that other expressions become."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def div(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value:
        return dim(_quotient(a.value, b.value))
    if a.value is None and a.text == b.text:
        return ONE
    return a if b.value == 1 else Dim(None, f"{a.atom} / {b.atom}")


def mod(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value:
        return dim(a.value - b.value * _quotient(a.value, b.value))
    if b.value == 1 or (a.value is None and a.text == b.text):
        return ZERO
    return Dim(None, f"{a.atom} % {b.atom}")


def product(dims: Iterable[Dim]) -> Dim:
    total = ONE
    for each in dims:
        total = mul(total, each)
    return total


def same(a: Dim, b: Dim) -> bool | None:
    """Whether they are equal; None when only the running program can tell."""
    if a.value is not None and b.value is not None:
        return a.value == b.value
    return True if a.text == b.text else None


def contiguous(shape: Iterable[Dim]) -> tuple[Dim, ...]:
    strides: list[Dim] = []
    step = ONE
    for extent in reversed(tuple(shape)):
        strides.append(step)
        step = mul(step, extent)
    return tuple(reversed(strides))


def is_contiguous(shape: Iterable[Dim], strides: Iterable[Dim]) -> bool:
    """Whether elements lie one after the other; the stride of a dimension of 1 says nothing."""
    shape = tuple(shape)
    dense = contiguous(shape)
    return all(
        extent.value == 1 or same(a, b) is True for extent, a, b in zip(shape, strides, dense, strict=True)
    )


def possible(shape: tuple[Dim, ...], span: Span) -> tuple[Dim, ...]:
    """The shape; refuse one that no buffer can have."""
    below = next((d for d in shape if d.value is not None and d.value < 0), None)
    if below is not None:
        raise ChoreoError(f"a dimension cannot be below 0, as {below} is", span)
    count = product(shape)
    if count.value is not None and count.value > _MOST:
        raise ChoreoError(f"{shown(shape)} has more elements than any memory", span)
    return shape


def shown(dims: Iterable[Dim]) -> str:
    return f"[{', '.join(d.text for d in dims)}]"
