"""`select` and the builtins, as C++."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelscope.gcu.choreo.builtins import BUILTINS, OF_INTEGERS, builtin
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError

from .data import FRACTIONS, HALVES, DataExpressions
from .shapes import Dim, dim, same
from .values import Data, Future, Scalar, Value

_ANY_NUMBER = (
    "abs", "sign", "neg", "bitnot", "isnan", "isinf", "isfinite", "max", "min", "inf", "nan",
)  # fmt: skip
INTEGER = ("int", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bool")


class CallExpressions(DataExpressions):
    """The part of expressions that chooses or calls."""

    choices: dict[int, int | None]  # which choice a selection is, where that is known
    scalar: Any

    def select(self, e: tree.Builtin) -> Value:
        """`select(c, a, b)` by a condition, `select(n, a, b, c, …)` by a number that counts from 0."""
        if len(e.args) < 3:
            raise ChoreoError("select takes a condition or a number, and at least two choices", e.span)
        choices: list[Value] = [self.value(arg) for arg in e.args[1:]]
        known = self.choices.get(id(e))
        if known is not None:
            return choices[known]
        which = self.scalar(e.args[0])
        views = [c.data if isinstance(c, Future) else c for c in choices]
        if all(isinstance(v, Data) for v in views):
            chosen = self._pick(e, which, [v for v in views if isinstance(v, Data)])
            return Future(chosen) if isinstance(choices[0], Future) else chosen
        if any(isinstance(v, Data | Future | None) for v in views):
            raise ChoreoError("select needs choices of one kind, each with its data", e.span)
        numbers = [wide(self.scalar(arg)) for arg in e.args[1:]]
        kind = numbers[0].type if len({n.type for n in numbers}) == 1 else ""
        text = numbers[-1].text
        for place in range(len(numbers) - 2, -1, -1):
            text = f"({self._is_choice(which, place, len(numbers))} ? {numbers[place].text} : {text})"
        return Scalar(text, kind)

    def _is_choice(self, which: Scalar, place: int, count: int) -> str:
        by_number = count > 2 or which.type in INTEGER[:-1]
        return f"{which.text} == {place}" if by_number else which.text

    def _pick(self, e: tree.Builtin, which: Scalar, views: list[Data]) -> Data:
        first = views[0]
        for other in views[1:]:
            if other.element != first.element or len(other.shape) != len(first.shape):
                raise ChoreoError("select needs choices of one element type and rank", e.span)
            pairs = [
                *zip(first.shape, other.shape, strict=True),
                *zip(first.strides, other.strides, strict=True),
            ]
            if any(same(a, b) is False for a, b in pairs):
                raise ChoreoError("select needs choices of one shape", e.span)
        count = len(views)
        if count > 2 or which.type in INTEGER[:-1]:
            number = self._within(which, dim(count), e.span, "choices") if which.high is None else which
            if number.high is not None and (number.high >= count or (number.low or 0) < 0):
                raise ChoreoError(
                    f"select counts to {number.high}, but there are only {count} choices", e.span
                )
            index = number.text
        else:
            index = f"({which.text}) ? 0 : 1"
        const = "const " if any(v.is_const for v in views) else ""
        pointers = ", ".join(v.address for v in views)
        pointer = f"choreo::pick<{const}choreo::{first.element}>({index}, {{{pointers}}})"
        return replace(first, pointer=pointer, offset=dim(0), is_const=bool(const))

    def call_builtin(self, e: tree.Builtin) -> Value:
        name = builtin(e.name)
        if not name:
            raise ChoreoError(f"there is no builtin `{e.name}`", e.span)
        if len(e.args) != BUILTINS[name]:
            raise ChoreoError(f"{e.name} takes {BUILTINS[name]} arguments, not {len(e.args)}", e.span)
        if name in OF_INTEGERS:
            return self._of_integers(name, e)
        args = [self.scalar(arg) for arg in e.args]
        wrong = next((a for a in args if a.type in ("text", "address")), None)
        if wrong is not None:
            raise ChoreoError(f"{e.name} needs a number", e.span)
        if name == "cast_f32" and _is_rounding(e.args[0]):  # to half precision and back
            number = args[0].text.removeprefix("choreo::cast_")
            return Scalar(f"choreo::rounded_{number}", "f32")
        if name.startswith("cast_"):
            return Scalar(f"choreo::{name}({args[0].text})", name.removeprefix("cast_"))
        given = [wide(a) for a in args]
        if name not in _ANY_NUMBER:
            given = [
                Scalar(f"static_cast<float>({a.text})", "float") if a.type in INTEGER else a for a in given
            ]
        return Scalar(f"choreo::{name}_({', '.join(a.text for a in given)})", "")

    def _of_integers(self, name: str, e: tree.Builtin) -> Value:
        a, b = self.value(e.args[0]), self.value(e.args[1])
        if isinstance(a, Dim) and isinstance(b, Dim) and a.value is not None and b.value is not None:
            if b.value <= 0:
                raise ChoreoError(f"{e.name} needs a divisor above 0, not {b}", e.span)
            quotient = a.value // b.value if name == "aligndown" else -(-a.value // b.value)
            return dim(quotient if name == "cdiv" else quotient * b.value)
        x, y = self.scalar(e.args[0]), self.scalar(e.args[1])
        wrong = next((v.type for v in (x, y) if v.type in FRACTIONS), "")
        if wrong:
            raise ChoreoError(f"{e.name} needs integers, not {wrong}", e.span)
        text = f"choreo::{name}_({x.text}, {y.text})"
        return Dim(None, text) if isinstance(a, Dim) and isinstance(b, Dim) else Scalar(text, "s64")


def _is_rounding(e: Any) -> bool:
    return isinstance(e, tree.Builtin) and builtin(e.name) in [f"cast_{half}" for half in HALVES]


def wide(x: Scalar) -> Scalar:
    """A half-precision number as a float: between two types that convert to each other C++ cannot choose."""
    return Scalar(f"static_cast<float>({x.text})", "float") if x.type in HALVES else x
