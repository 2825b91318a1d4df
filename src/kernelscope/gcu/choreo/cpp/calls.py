"""`select` and the builtins, as C++."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelscope.gcu.choreo.builtins import ATOMICS, BUILTINS, OF_INTEGERS, builtin
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span

from .data import DataExpressions
from .shapes import Dim, dim, same
from .sizes.arithmetic import bits_shifted, fold
from .sizes.tiles import shown_range
from .values import FRACTIONS, HALVES, INTEGER, Data, Future, Scalar, Scope, Value, cpp_type, is_in

_ANY_NUMBER = (
    "abs", "sign", "neg", "bitnot", "isnan", "isinf", "isfinite", "max", "min", "inf", "nan",
)  # fmt: skip


class CallExpressions(DataExpressions):
    """The part of expressions that chooses or calls."""

    choices: dict[int, int | None]  # which choice a selection is, where that is known
    scalar: Any
    text: Any
    scope: Scope
    cpp: str | None = ""  # the C++ of the file; None: it includes files that were not read
    in_shape = False  # whether what is translated is a part of a shape
    conditional = False  # whether it is a part of an expression that another part can skip
    hold: Any
    divisors: list[tuple[str, str]]  # of sizes, each with what is said where it is 0

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
            number = self.within(which, dim(count), e.span, "choices") if which.high is None else which
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

    def settings(self, call: tree.Call | tree.CallValue) -> str:
        """What stands between < and > of a call: numbers, types, and names of the file's own C++."""
        texts = [self._setting(x) for x in call.settings]
        return f"<{', '.join(texts)}>" if texts else ""

    def _setting(self, x: tree.Expr) -> str:
        if not isinstance(x, tree.Name) or self.scope.find(x.id) is not None or x.id in ("true", "false"):
            return str(self.text(x))
        if x.id in (*tree.SCALARS, *tree.ALIASES):
            return cpp_type(tree.ALIASES.get(x.id, x.id))
        if self.cpp is not None and not is_in(x.id, self.cpp):
            raise ChoreoError(f"`{x.id}` is declared neither here nor in the C++ of this file", x.span)
        return x.id

    def call_builtin(self, e: tree.Builtin) -> Value:
        if e.name.startswith("__atomic_"):
            return self._atomic(e)
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

    def _atomic(self, e: tree.Builtin) -> Scalar:
        """`__atomic_add(x.at(i), 1)`: the element before it was changed."""
        kind = e.name.removeprefix("__atomic_")
        if kind not in ATOMICS:
            raise ChoreoError(f"there is no builtin `{e.name}`", e.span)
        if len(e.args) != ATOMICS[kind]:
            raise ChoreoError(f"{e.name} takes {ATOMICS[kind]} arguments, not {len(e.args)}", e.span)
        if not isinstance(e.args[0], tree.At):
            raise ChoreoError(f"{e.name} changes an element: its first argument is data.at(…)", e.span)
        place = self.scalar(e.args[0])
        if place.type in HALVES or (place.type in FRACTIONS and kind in ("and", "or", "xor", "cas")):
            raise ChoreoError(f"{e.name} cannot change an element of {place.type}", e.span)
        values = [self.scalar(arg) for arg in e.args[1:]]
        if any(v.type in ("text", "address") for v in values):
            raise ChoreoError(f"{e.name} needs a number", e.span)
        given = ", ".join(f"static_cast<choreo::{place.type}>({wide(v).text})" for v in values)
        return Scalar(f"choreo::atomic_{kind}({place.text}, {given})", place.type)

    def of_shape(self, e: tree.Expr) -> Value:
        """Equal shapes have equal texts, so a check before them says where their divisions are."""
        outer, self.in_shape = self.in_shape, True
        value: Value = self.value(e)
        self.in_shape = outer
        return value

    def combined(self, op: str, a: Scalar, b: Scalar, span: Span) -> str:
        """`a op b`; an integer divided by 0 is a failure with its line, and not the end of the process."""
        fraction = next((x.type for x in (a, b) if x.type in FRACTIONS), "")
        if op in ("%", "&", "|", "^", "<<", ">>") and fraction:
            raise ChoreoError(f"`{op}` needs integers, not {fraction}", span)
        bits = bits_shifted(a)
        if op in ("<<", ">>") and bits and b.low is not None and (b.low >= bits or (b.high or 0) < 0):
            raise ChoreoError(f"a number of {bits} bits cannot be shifted by {shown_range(b)}", span)
        never_zero = (b.low is not None and b.low > 0) or (b.high is not None and b.high < 0)
        if op not in ("/", "%") or never_zero or not self.checked or {a.type, b.type} & {*FRACTIONS}:
            return f"{a.text} {op} {b.text}"
        if self.in_shape and not self.conditional:
            self._never_zero(b.text, span)
            return f"{a.text} {op} {b.text}"
        return self._quotient(op, a.text, b.text, span)

    def _quotient(self, op: str, a: str, b: str, span: Span) -> str:
        name = "quotient" if op == "/" else "remainder"
        return f"choreo::{name}({a}, {b}, {self._quoted('division by zero', span)})"

    def _never_zero(self, divisor: str, span: Span) -> None:
        """A size is not divided by 0: the program stops before."""
        self.hold(f"{divisor} != 0", "division by zero", span)
        self.divisors.append((divisor, self._quoted("division by zero", span)))

    def fold(self, op: str, a: Dim, b: Dim, span: Span) -> Dim:
        """`a op b` of sizes."""
        if op in ("/", "%") and b.value == 0:
            raise ChoreoError("division by zero", span)
        if op in ("/", "%") and b.value is None and self.checked:
            if self.conditional:
                return Dim(None, self._quotient(op, a.text, b.text, span))
            self._never_zero(b.atom, span)
        return fold(op, a, b)

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
        is_shape = isinstance(a, Dim) and isinstance(b, Dim)
        divisor = y.text
        if self.checked and (y.low is None or y.low <= 0):
            message = f"{e.name} needs a divisor above 0"
            if (is_shape or self.in_shape) and not self.conditional:
                self.hold(f"{y.text} > 0", message, e.args[1].span)
                self.divisors.append((y.text, self._quoted(message, e.args[1].span)))
            else:
                divisor = f"choreo::positive({y.text}, {self._quoted(message, e.args[1].span)})"
        text = f"choreo::{name}_({x.text}, {divisor})"
        return Dim(None, text) if is_shape else Scalar(text, "s64")


def _is_rounding(e: Any) -> bool:
    return isinstance(e, tree.Builtin) and builtin(e.name) in [f"cast_{half}" for half in HALVES]


def wide(x: Scalar) -> Scalar:
    """A half-precision number as a float: between two types that convert to each other C++ cannot choose."""
    return Scalar(f"static_cast<float>({x.text})", "float") if x.type in HALVES else x


def known_or_text(number: Scalar) -> Dim:
    if number.low is not None and number.low == number.high and not number.is_mutable:
        return dim(number.low)
    return Dim(None, number.text)
