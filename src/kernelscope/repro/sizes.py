"""Symbolic sizes: what a recorded shape tells about them. Needs no torch, and evaluates no text as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: (
        base**exponent if 0 <= exponent <= 8 and abs(base) < 1 << 24 else _LARGEST
    ),
}
_LARGEST = 1 << 48


def value_of(text: int | str, known: Mapping[str, int]) -> int | None:
    """The number that a size like "2*s77" stands for; None where that is not known."""
    if isinstance(text, int):
        return text
    try:
        return _number(ast.parse(text, mode="eval").body, known)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, KeyError):
        return None


def _number(node: ast.expr, known: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found = _OPERATORS[type(node.op)](_number(node.left, known), _number(node.right, known))
        if abs(found) < _LARGEST:
            return found
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, known)
    raise ValueError("no size")


def learn(known: dict[str, int], symbolic: Sequence[int | str], real: Sequence[int]) -> None:
    """Plain symbols in a shape are what the recorded shape has there."""
    if len(symbolic) == len(real):
        for size, number in zip(symbolic, real, strict=True):
            if isinstance(size, str) and size.isidentifier():
                known.setdefault(size, number)


def values_of(sizes: Sequence[int | str], known: Mapping[str, int]) -> tuple[int, ...] | None:
    found = [value_of(size, known) for size in sizes]
    return None if None in found else tuple(n for n in found if n is not None)
