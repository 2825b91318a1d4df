"""What the source of a Triton kernel fixes at compile time: constants, and the branches that they choose."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

Constants = Mapping[str, Any]
UNKNOWN = object()  # known only to the kernel
_COMPARED = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_COMPUTED = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def is_constexpr(annotation: ast.expr) -> bool:
    return "constexpr" in ast.unparse(annotation)


def assigned_names(function: ast.FunctionDef) -> set[str]:
    """The variables that a function assigns to, so that they are not constant."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets):
                found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            case ast.AugAssign(target=ast.Name(id=name)) | ast.NamedExpr(target=ast.Name(id=name)):
                found.add(name)
            case ast.For(target=target):
                found |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def taken(test: ast.expr, constants: Constants) -> bool | None:
    """Which way a branch goes; None: that is not decided by constants."""
    value = constant(test, constants)
    return None if value is UNKNOWN else bool(value)


def constant(node: ast.expr, constants: Constants) -> Any:
    """The value of an expression of constants, else UNKNOWN."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return constants.get(name, UNKNOWN)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = constant(operand, constants)
            return UNKNOWN if value is UNKNOWN else not value
        case ast.BoolOp(op=op, values=parts):
            return _decided([constant(part, constants) for part in parts], isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return _computed(_COMPARED[type(op)], constant(left, constants), constant(right, constants))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
            return _computed(_COMPUTED[type(op)], constant(left, constants), constant(right, constants))
    return UNKNOWN


def _decided(values: list[Any], decisive: bool) -> Any:
    """`and` is false if one is false, whatever the others are; `or` likewise."""
    if any(value is not UNKNOWN and bool(value) == decisive for value in values):
        return decisive
    return UNKNOWN if UNKNOWN in values else not decisive


def _computed(compute: Any, left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    try:
        return compute(left, right)
    except (TypeError, ArithmeticError):
        return UNKNOWN
