"""What is known of a number that two others make."""

from __future__ import annotations

from kernelscope.gcu.choreo.cpp.shapes import Dim, add, div, mod, mul, sub
from kernelscope.gcu.choreo.cpp.values import INTEGER, Scalar


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
