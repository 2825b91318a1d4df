"""What is known of a number that two others make."""

from __future__ import annotations

from kernelscope.gcu.choreo.cpp.shapes import Dim, add, div, mod, mul, sub
from kernelscope.gcu.choreo.cpp.sizes.tiles import shown_range
from kernelscope.gcu.choreo.cpp.values import INTEGER, Scalar
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span


def common(a: Scalar, b: Scalar) -> str:
    if a.type in INTEGER and b.type in INTEGER:
        return "s64" if "s64" in (a.type, b.type) else a.type
    return ""


def interval(op: str, a: Scalar, b: Scalar) -> tuple[int | None, int | None]:
    ends = (a.low, a.high, b.low, b.high)
    if op not in ("+", "-", "*") or any(end is None for end in ends):
        if op == "%" and b.low is not None and b.low == b.high and a.low is not None and a.low >= 0:
            return 0, b.low - 1
        if op == "/" and b.low is not None and b.low == b.high and b.low > 0 and (a.low or 0) >= 0:
            return (None if a.low is None else a.low // b.low, None if a.high is None else a.high // b.low)
        return None, None
    al, ah, bl, bh = (end for end in ends if end is not None)
    if op == "+":
        return al + bl, ah + bh
    if op == "-":
        return al - bh, ah - bl
    corners = [x * y for x in (al, ah) for y in (bl, bh)]
    return min(corners), max(corners)


def fold(op: str, a: Dim, b: Dim) -> Dim:
    return {"+": add, "-": sub, "*": mul, "/": div, "%": mod}[op](a, b)


def bits_shifted(a: Scalar) -> int:
    """How many bits C++ shifts: a literal is an int, as in C; 0: not known."""
    if a.text.isdigit():
        return 32 if int(a.text) < 1 << 31 else 64
    return 64 if a.type in ("s64", "u64") else 32 if a.type in INTEGER else 0


def refuse_too_large(number: Scalar, kind: str, span: Span) -> None:
    """A number that no integer of that kind can be. Signs may change, as in C: `u32 x = -1;`."""
    if kind not in INTEGER or kind == "bool" or number.low is None or number.high is None:
        return
    bits = 32 if kind == "int" else int(kind[1:])
    if number.low >= 1 << bits or number.high < -(1 << bits - 1):
        raise ChoreoError(f"{shown_range(number)} does not fit into {kind}", span)
