"""Expressions to C++, with the checks of rank, bounds and divisibility."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelscope.gcu.choreo.builtins import BUILTINS
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span

from .data import FRACTIONS, DataExpressions
from .shapes import Dim, add, dim, div, mod, mul, product, same, sub
from .values import Bounded, Data, Future, Scalar, Scope, Several, Value, bounded

_INTEGER = ("int", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bool")
Check = Callable[[str, str, Span], None]  # emits a check that the running program makes
Quoted = Callable[[str, Span], str]  # a message with its place, as a C++ literal


class Expressions(DataExpressions):
    """Turns expressions into C++ within a scope."""

    def __init__(self, scope: Scope, check: Check, quoted: Quoted, checked: bool) -> None:
        self.scope = scope
        self._check = check
        self._quoted = quoted
        self.checked = checked  # whether indices that nothing is known of are checked when they are used

    # -- any value -------------------------------------------------------------------------------------

    def value(self, e: tree.Expr) -> Value:
        match e:
            case tree.Name():
                return self._named(e)
            case tree.Int():
                return dim(e.value)
            case tree.Tuple() | tree.Mdspan():
                return Several(tuple(v for item in e.items for v in self._flat(item)))
            case tree.Member(name="span"):
                return Several(self._spanned(e.of).shape)
            case tree.Member(name="data"):
                return self.data(e)
            case tree.Item():
                return self._item(e)
            case tree.Derive():
                extents = self.dims_of(e.of)
                return Several(tuple(self._derived(item, extents) for item in e.items))
            case tree.Count():
                operand = self.value(e.operand)
                if isinstance(operand, Several) and not all(isinstance(i, Dim) for i in operand.items):
                    raise ChoreoError("only data and spans have a number of elements", e.span)
                shape = operand.shape if isinstance(operand, Data) else self.dims_of(e.operand)
                return product(shape)
            case tree.Unary(op="#"):
                return self._bound(e)
            case tree.Binary(op="#" | "#-"):
                return self._composed(e)
            case tree.ChunkAt() | tree.Tile() | tree.SpanAs():
                return self.data(e)
            case tree.Builtin(name="select"):
                return self._select(e)
        return self._scalar(e)

    def _named(self, e: tree.Name) -> Value:
        found = self.scope.find(e.id)
        if found is None:
            raise ChoreoError(f"`{e.id}` is not declared", e.span)
        return found

    def _flat(self, e: tree.Expr) -> tuple[object, ...]:
        value = self.value(e)
        if isinstance(value, Several):
            return value.items
        if isinstance(value, Data | Future):
            raise ChoreoError("data cannot stand here; did you mean its .span?", e.span)
        return (value,)

    def _item(self, e: tree.Item) -> Value:
        of = self.value(e.of)
        index = self.dim(e.index).value
        items = of.items if isinstance(of, Several) else (of,)
        if index is None or not -len(items) <= index < len(items):
            raise ChoreoError(f"({index}) is out of range: there are {len(items)} parts", e.span)
        found = items[index]
        assert isinstance(found, Dim | Bounded | Scalar)
        return found

    def _derived(self, e: tree.Expr, extents: tuple[Dim, ...]) -> Dim:
        if isinstance(e, tree.Extent):
            if e.index >= len(extents):
                raise ChoreoError(f"there is no extent ({e.index}) in a rank {len(extents)} span", e.span)
            return extents[e.index]
        if isinstance(e, tree.Binary):
            return _fold(e.op, self._derived(e.left, extents), self._derived(e.right, extents), e.span)
        return self.dim(e)

    def _bound(self, e: tree.Unary) -> Value:
        of = self.value(e.operand)
        if isinstance(of, Bounded):
            return of.bound
        if isinstance(of, Several) and all(isinstance(i, Bounded) for i in of.items):
            return Several(tuple(i.bound for i in of.items if isinstance(i, Bounded)))
        raise ChoreoError("only a bounded variable has an upper bound", e.span)

    def _composed(self, e: tree.Binary) -> Value:
        left, right = self.value(e.left), self.value(e.right)
        if e.op == "#-" and isinstance(left, Bounded) and isinstance(right, Dim):
            return bounded(left.value, sub(left.bound, right))
        if not isinstance(left, Bounded) or not isinstance(right, Bounded):
            raise ChoreoError(f"both sides of {e.op} must be bounded variables", e.span)
        value = add(mul(left.value, right.bound), right.value)
        return bounded(value, mul(left.bound, right.bound))

    def _select(self, e: tree.Builtin) -> Value:
        if len(e.args) != 3:
            raise ChoreoError("select takes a condition and two choices", e.span)
        then, other = self.value(e.args[1]), self.value(e.args[2])
        if isinstance(then, Future) and isinstance(other, Future) and then.data and other.data:
            if any(same(a, b) is False for a, b in zip(then.data.shape, other.data.shape, strict=True)):
                raise ChoreoError("select needs futures of one shape", e.span)
            condition = self.text(e.args[0])
            pointer = f"({condition} ? {then.data.pointer} : {other.data.pointer})"
            return Future(replace(then.data, pointer=pointer))
        a, b = _wide(self.scalar(e.args[1])), _wide(self.scalar(e.args[2]))
        return Scalar(f"({self.text(e.args[0])} ? {a.text} : {b.text})", a.type if a.type == b.type else "")

    # -- numbers ---------------------------------------------------------------------------------------

    def text(self, e: tree.Expr) -> str:
        """A C++ expression for one number."""
        return self.scalar(e).text

    def scalar(self, e: tree.Expr) -> Scalar:
        value = self.value(e)
        match value:
            case Scalar():
                return value
            case Dim():
                return Scalar(value.atom, "s64", value.value, value.value)
            case Bounded():
                return Scalar(value.value.atom, "s64", value.low, value.high)
            case Several() if len(value.items) == 1:
                only = value.items[0]
                return self._number(only)
        raise ChoreoError("expected a single number here", e.span)

    def _number(self, item: object) -> Scalar:
        if isinstance(item, Dim):
            return Scalar(item.atom, "s64", item.value, item.value)
        if isinstance(item, Bounded):
            return Scalar(item.value.atom, "s64", item.low, item.high)
        assert isinstance(item, Scalar)
        return item

    def dim(self, e: tree.Expr) -> Dim:
        """An integer that is known now, or when the program runs."""
        value = self.value(e)
        if isinstance(value, Dim):
            return value
        if isinstance(value, Bounded):
            return value.value
        if isinstance(value, Several) and len(value.items) == 1 and isinstance(value.items[0], Dim):
            return value.items[0]
        if isinstance(value, Scalar) and value.type in _INTEGER:
            return Dim(None, value.text)
        raise ChoreoError("expected an integer here", e.span)

    def dims_of(self, e: tree.Expr) -> tuple[Dim, ...]:
        """An mdspan as extents."""
        value = self.value(e)
        items: tuple[object, ...]
        match value:
            case Several():
                items = value.items
            case Data():
                items = value.shape
            case Future() if value.data is not None:
                items = value.data.shape
            case Future():
                raise ChoreoError("its shape is not known yet", e.span)
            case _:
                items = (value,)
        return tuple(i if isinstance(i, Dim) else Dim(None, self._number(i).text) for i in items)

    def shape(self, items: tuple[tree.Expr, ...]) -> tuple[Dim, ...]:
        return tuple(d for item in items for d in self.dims_of(item))

    def _scalar(self, e: tree.Expr) -> Value:
        match e:
            case tree.Float():
                # In C++ a float literal needs a point or an exponent before its suffix.
                whole = e.text[:-1] if e.text[-1] in "fF" else e.text
                dotted = whole if any(c in whole for c in ".eE") else whole + ".0"
                return Scalar(dotted + "f" if e.text[-1] in "fF" else dotted, "float")
            case tree.Text():
                return Scalar(e.value, "text")
            case tree.Unary(op="-", operand=tree.Int() as number):
                return dim(-number.value)
            case tree.Unary(op="-"):
                return Scalar(f"(-{self.text(e.operand)})", self.scalar(e.operand).type)
            case tree.Unary(op="!"):
                return Scalar(f"(!{self.text(e.operand)})", "bool")
            case tree.Binary():
                return self._arithmetic(e)
            case tree.Ternary():
                then, other = _wide(self.scalar(e.then)), _wide(self.scalar(e.other))
                text = f"({self.text(e.condition)} ? {then.text} : {other.text})"
                return Scalar(text, then.type if then.type == other.type else "")
            case tree.At():
                return self.element(e)
            case tree.Builtin():
                return self._builtin(e)
        raise ChoreoError("this is not a number", e.span)

    def _arithmetic(self, e: tree.Binary) -> Value:
        left, right = self.value(e.left), self.value(e.right)
        if isinstance(left, Dim) and isinstance(right, Dim) and e.op in ("+", "-", "*", "/", "%"):
            return _fold(e.op, left, right, e.span)
        a, b = self.scalar(e.left), self.scalar(e.right)
        fraction = next((x.type for x in (a, b) if x.type in FRACTIONS), "")
        if e.op in ("%", "&", "|", "^", "<<", ">>") and fraction:
            raise ChoreoError(f"`{e.op}` needs integers, not {fraction}", e.span)
        kind = "bool" if e.op in ("==", "!=", "<", ">", "<=", ">=", "&&", "||") else _common(a, b)
        return Scalar(f"({a.text} {e.op} {b.text})", kind, *_interval(e.op, a, b))

    def _builtin(self, e: tree.Builtin) -> Scalar:
        name = e.name.removeprefix("__")
        if name not in BUILTINS or not e.name.startswith("__"):
            raise ChoreoError(f"there is no builtin `{e.name}`", e.span)
        if len(e.args) != BUILTINS[name]:
            raise ChoreoError(f"{e.name} takes {BUILTINS[name]} arguments, not {len(e.args)}", e.span)
        args = ", ".join(self.text(arg) for arg in e.args)
        if name.startswith("cast_"):
            return Scalar(f"choreo::{name}({args})", name.removeprefix("cast_"))
        return Scalar(f"choreo::{name}_({args})", "")


def _wide(x: Scalar) -> Scalar:
    """A half-precision number as a float: between two types that convert to each other C++ cannot choose."""
    return Scalar(f"static_cast<float>({x.text})", "float") if x.type in ("f16", "bf16") else x


def _common(a: Scalar, b: Scalar) -> str:
    if a.type in _INTEGER and b.type in _INTEGER:
        return "s64" if "s64" in (a.type, b.type) else a.type
    return ""


def _interval(op: str, a: Scalar, b: Scalar) -> tuple[int | None, int | None]:
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


def _fold(op: str, a: Dim, b: Dim, span: Span) -> Dim:
    if op in ("/", "%") and b.value == 0:
        raise ChoreoError("division by zero", span)
    return {"+": add, "-": sub, "*": mul, "/": div, "%": mod}[op](a, b)
