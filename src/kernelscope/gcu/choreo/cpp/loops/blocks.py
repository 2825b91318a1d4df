"""A loop that calls functions of blocks (runtime/block_functions.h), as several loops over each block.

    foreach i in x.span { f32 v = a.at(i) * 2.0f; y.at(i) = __sin(v) + v; }

becomes, for each block of x: the arguments of sin, with v kept; sin of the block; the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelscope.gcu.choreo.builtins import builtin
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.walk import names

_FUNCTIONS = frozenset(("sin", "cos", "tan", "asin", "acos", "atan", "log2", "log10", "tanh", "erfc"))
# The polynomials are as fast in a loop with other work, but not in a loop that does nothing else.
_ALONE = frozenset(("exp", "log"))
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "&&", "||")
_INTEGERS = ("isnan", "isinf", "isfinite")
_WHOLE = "int"
TypeOf = Callable[[tree.Expr], str]  # of a name or an element: f32, f64, s32, …; nothing if it is not known


@dataclass(frozen=True)
class OfBlock:
    """One call of a function of blocks."""

    function: str
    name: str  # of its argument, and then its result, in the tree; no program can have it
    argument: tree.Expr


@dataclass(frozen=True)
class Part:
    """One loop over a block, and what is then done with the block."""

    statements: tuple[tree.Stmt, ...]
    call: OfBlock | None
    kept: tuple[tree.DeclareScalar, ...] = ()  # which later parts read

    @property
    def mentions(self) -> set[str]:
        return names(self.statements) | (names(self.call.argument) if self.call else set())


def parts(body: tree.Block, type_of: TypeOf) -> list[Part]:
    """The loops over each block; none if there is nothing to gain."""
    is_alone = len(body) == 1 and isinstance(body[0], tree.Store) and _function(body[0].value) in _ALONE
    found = _Division(type_of, _FUNCTIONS | _ALONE if is_alone else _FUNCTIONS).divide(body)
    if len(found) < 2:
        return []
    later: set[str] = set()
    kept: list[Part] = []
    for part in reversed(found):
        scalars = [s for s in part.statements if isinstance(s, tree.DeclareScalar) and s.name in later]
        if any(s.is_mutable or not _plain(s.type) for s in scalars):
            return []
        kept.insert(0, dataclasses.replace(part, kept=tuple(scalars)))
        later |= part.mentions
    return kept


class _Division:
    def __init__(self, type_of: TypeOf, functions: frozenset[str]) -> None:
        self._type_of = type_of
        self._functions = functions
        self._own: dict[str, str] = {}
        self._parts: list[Part] = []
        self._open: list[tree.Stmt] = []

    def divide(self, body: tree.Block) -> list[Part]:
        for each in body:
            value = "init" if isinstance(each, tree.DeclareScalar) else "value"
            given = getattr(each, value, None)
            new = each if given is None else dataclasses.replace(each, **{value: self._without_calls(given)})
            if isinstance(each, tree.DeclareScalar):
                self._own[each.name] = each.type
            self._open.append(new)
        self._parts.append(Part(tuple(self._open), None))
        return self._parts

    def _without_calls(self, e: Any) -> Any:
        """The expression with the results of functions of blocks instead of their calls."""
        if isinstance(e, tuple):
            return tuple(self._without_calls(each) for each in e)
        if not isinstance(e, tree.Expr) or isinstance(e, tree.At):
            return e
        inner = {
            field.name: self._without_calls(getattr(e, field.name))
            for field in dataclasses.fields(e)
            if field.name != "span"
        }
        e = dataclasses.replace(e, **inner)
        function = _function(e)
        if function not in self._functions or self._kind(e.args[0]) not in ("f32", _WHOLE):
            return e
        call = OfBlock(function, f"{function} of block {len(self._parts)}", e.args[0])
        self._parts.append(Part(tuple(self._open), call))
        self._open = []
        self._own[call.name] = "f32"
        return tree.Name(call.name, span=e.span)

    def _kind(self, e: tree.Expr) -> str:
        """What C++ makes of an expression: f32, f64, an integer; nothing if that is not plain to see."""
        match e:
            case tree.Float():
                return "f32" if e.text[-1] in "fF" else "f64"
            case tree.Int():
                return _WHOLE
            case tree.Name() if e.id in self._own:
                return _plain(self._own[e.id])
            case tree.Name() | tree.At():
                return _plain(self._type_of(e))
            case tree.Unary(op="-"):
                return self._kind(e.operand)
            case tree.Binary(op=op) if op in _COMPARISONS:
                return _WHOLE
            case tree.Binary():
                return _both([self._kind(e.left), self._kind(e.right)])
            case tree.Ternary():
                return _both([self._kind(e.then), self._kind(e.other)])
            case tree.Builtin() | tree.CallValue() if function := _function(e):
                if function.startswith("cast_"):
                    return _plain(function.removeprefix("cast_"))
                return _WHOLE if function in _INTEGERS else _both(["f32", *map(self._kind, e.args)])
        return ""


def _function(e: Any) -> str:
    """The builtin that an expression calls, by itself or as a device function; nothing if it is no call."""
    if isinstance(e, tree.Builtin):
        return builtin(e.name) or ""
    if isinstance(e, tree.CallValue) and e.name.startswith("dev_"):
        return e.name.removeprefix("dev_")
    return ""


def _plain(kind: str) -> str:
    if kind in ("f32", "float", "f16", "bf16", "half", "bfp16"):
        return "f32"  # a number in half precision is computed with as a float
    if kind in ("f64", "double"):
        return "f64"
    return _WHOLE if kind[:1] in ("s", "u") or kind in ("int", "bool") else ""


def _both(kinds: list[str]) -> str:
    if not all(kinds):
        return ""
    return next((kind for kind in ("f64", "f32") if kind in kinds), _WHOLE)
