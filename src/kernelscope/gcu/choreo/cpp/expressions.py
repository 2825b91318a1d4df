"""Expressions to C++, with the checks of rank, bounds and divisibility."""

from __future__ import annotations

from collections.abc import Callable

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import nodes

from .calls import CallExpressions, known_or_text, wide
from .shapes import Dim, add, dim, mul, possible, product, sub
from .sizes.arithmetic import common, interval
from .values import (
    FRACTIONS,
    INTEGER,
    Bounded,
    Buffers,
    Data,
    Future,
    Scalar,
    Scope,
    Several,
    Value,
    bounded,
)
from .words.advice import of_number

SIZES = {  # `|f32|`: the bytes of one element
    **{e: int(e.lstrip("bsuf")) // 8 for e in tree.ELEMENTS},
    **dict.fromkeys(("int", "float"), 4),
    "double": 8,
}
Hold = Callable[[str, str, Span], None]  # emits what must hold, or the running program stops
Quoted = Callable[[str, Span], str]  # a message with its place, as a C++ literal


class Expressions(CallExpressions):
    """Turns expressions into C++ within a scope."""

    def __init__(self, scope: Scope, hold: Hold, quoted: Quoted, checked: bool) -> None:
        self.scope = scope
        self.hold = hold
        self._quoted = quoted
        self.choices = {}
        self.divisors = []
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
                self.refuse_element(e)
                return self._item(e)
            case tree.Derive():
                array = self.array_item(e)
                if array is not None:
                    return array
                self.refuse_element(e)
                extents = self.dims_of(e.of)
                return Several(tuple(self._derived(item, extents) for item in e.items))
            case tree.Count(operand=tree.Name(id=kind)) if kind in SIZES and self.scope.find(kind) is None:
                return dim(SIZES[kind])
            case tree.Count():
                operand = self.value(e.operand)
                if any(isinstance(i, Scalar | Bounded) for i in getattr(operand, "items", (operand,))):
                    raise ChoreoError("only data and spans have a number of elements", e.span)
                shape = operand.shape if isinstance(operand, Data) else self.dims_of(e.operand)
                return product(shape)
            case tree.Unary(op="#"):
                return self._bound(e)
            case tree.Binary(op="#" | "#-" | "#+" | "#*" | "#/" | "#%"):
                return self._composed(e)
            case tree.ChunkAt() | tree.Tile() | tree.SpanAs():
                return self.data(e)
            case tree.Builtin(name="select"):
                return self.select(e)
        return self._scalar(e)

    def _named(self, e: tree.Name) -> Value:
        found = self.scope.find(e.id)
        if found is None and e.id in ("true", "false"):
            return Scalar(e.id, "bool")
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
        if isinstance(of, Bounded) and index is not None and index < 0:  # counted from its last value
            last = add(of.bound, dim(index))
            return Bounded(last, of.bound, last.value, last.value, is_shifted=True)
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
            return self.fold(e.op, self._derived(e.left, extents), self._derived(e.right, extents), e.span)
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
        if e.op != "#" and isinstance(left, Bounded) and isinstance(right, Dim):
            return bounded(left.value, self.fold(e.op[1], left.bound, right, e.span))
        if not isinstance(left, Bounded) or not isinstance(right, Bounded):
            raise ChoreoError(f"both sides of {e.op} must be bounded variables", e.span)
        value, bound = add(mul(left.value, right.bound), right.value), mul(left.bound, right.bound)
        if left.is_shifted or right.is_shifted:
            return Bounded(value, bound, None, None, is_shifted=True)
        return bounded(value, bound)

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
        raise ChoreoError(of_number(value), e.span)

    def assignable(self, e: tree.Expr) -> Scalar:
        """A number that a variable or an element can get."""
        found = self.scalar(e)
        if found.type in ("text", "address"):
            what = "a text" if found.type == "text" else "an address"
            raise ChoreoError(f"a number is expected here, not {what}", e.span)
        return found

    def _number(self, item: object) -> Scalar:
        if isinstance(item, Dim):
            return Scalar(item.atom, "s64", item.value, item.value)
        if isinstance(item, Bounded):
            return Scalar(item.value.atom, "s64", item.low, item.high)
        assert isinstance(item, Scalar)
        return item

    def number_text(self, item: object) -> str:
        return self._number(item).text

    def dim(self, e: tree.Expr) -> Dim:
        """An integer that is known now, or when the program runs."""
        value = self.of_shape(e)
        if isinstance(value, Dim):
            return value
        if isinstance(value, Bounded):
            return value.value
        if isinstance(value, Several) and len(value.items) == 1 and isinstance(value.items[0], Dim):
            return value.items[0]
        if isinstance(value, Scalar) and value.type in INTEGER:
            return known_or_text(value)
        raise ChoreoError("expected an integer here", e.span)

    def dims_of(self, e: tree.Expr) -> tuple[Dim, ...]:
        """An mdspan as extents."""
        value = self.of_shape(e)
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
        wrong = next((i.type for i in items if isinstance(i, Scalar) and i.type not in (*INTEGER, "")), "")
        if wrong:
            raise ChoreoError(f"a size must be an integer, not {wrong}", e.span)
        dims = tuple(i if isinstance(i, Dim) else known_or_text(self._number(i)) for i in items)
        return tuple(map(self.fixed, dims)) if self.varies(e) else dims

    def varies(self, e: tree.Expr) -> bool:
        """Whether it may be another number later, because of a variable, an element or a call."""
        return any(
            isinstance(n, tree.At | tree.CallValue)
            or (isinstance(n, tree.Name) and getattr(self.scope.find(n.id), "is_mutable", False))
            for n in nodes(e)
        )

    def fixed(self, d: Dim) -> Dim:
        """A size as it is now."""
        return d if d.value is not None else self.keep(d.text)

    def shape(self, items: tuple[tree.Expr, ...], span: Span) -> tuple[Dim, ...]:
        if not items:
            raise ChoreoError("at least one size is expected here", span)
        return possible(tuple(d for item in items for d in self.dims_of(item)), items[0].span)

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
            case tree.Unary(op="~"):
                inner = self.scalar(e.operand)
                if inner.type in FRACTIONS:
                    raise ChoreoError(f"`~` needs an integer, not {inner.type}", e.span)
                return Scalar(f"choreo::bitnot_({inner.text})", inner.type)
            case tree.Unary(op="&"):
                return self._address(e)
            case tree.CallValue():
                return Scalar(f"{e.name}{self.settings(e)}({', '.join(self.argument(a) for a in e.args)})")
            case tree.Unary(op="!"):
                return Scalar(f"(!{self.text(e.operand)})", "bool")
            case tree.Binary():
                return self._arithmetic(e)
            case tree.Ternary():
                condition = self.text(e.condition)
                outer = self.guarded, self.conditional
                self.guarded = self.conditional = True
                then, other = wide(self.scalar(e.then)), wide(self.scalar(e.other))
                self.guarded, self.conditional = outer
                text = f"({condition} ? {then.text} : {other.text})"
                return Scalar(text, then.type if then.type == other.type else "")
            case tree.At():
                return self.element(e)
            case tree.Builtin():
                return self.call_builtin(e)
        raise ChoreoError("this is not a number", e.span)

    def _address(self, e: tree.Unary) -> Scalar:
        """`&x`: for a kernel that writes it, or to print where it lies."""
        value = self.value(e.operand)
        if isinstance(value, Data):
            return Scalar(f"static_cast<const void*>({value.address})", "address")
        place = self.scalar(e.operand).text
        if not (place.isidentifier() or isinstance(e.operand, tree.At)):
            raise ChoreoError("only a variable or an element has an address", e.span)
        return Scalar(f"(&{place})", "address")

    def argument(self, a: tree.Expr) -> str:
        """What a kernel is given: a pointer to data, or a number."""
        value = self.value(a)
        if isinstance(value, Future):
            value = self.data(tree.Member(a, "data", span=a.span))
        if isinstance(value, Buffers):  # they lie one after another
            value = value.first
        return value.address if isinstance(value, Data) else self.text(a)

    def _arithmetic(self, e: tree.Binary) -> Value:
        if e.op in ("+", "-", "*", "/", "%"):
            left, right = self.value(e.left), self.value(e.right)
            if isinstance(left, Dim) and isinstance(right, Dim):
                return self.fold(e.op, left, right, e.span)
            if isinstance(left, Several) or isinstance(right, Several):
                return self._of_spans(e, left, right)
            shifted = self._shifted(e.op, left, right)
            if shifted is not None:
                return shifted
        a = self.scalar(e.left)
        outer, skips = (self.guarded, self.conditional), e.op in ("&&", "||")
        self.guarded, self.conditional = self.guarded or skips, self.conditional or skips
        b = self.scalar(e.right)
        self.guarded, self.conditional = outer
        kind = "bool" if e.op in ("==", "!=", "<", ">", "<=", ">=", "&&", "||") else common(a, b)
        return Scalar(f"({self.combined(e.op, a, b, e.span)})", kind, *interval(e.op, a, b))

    def _shifted(self, op: str, left: Value, right: Value) -> Bounded | None:
        """`i - 1`, `i + n`: still one of the chunks that i counts."""
        if op == "*" and isinstance(left, Bounded) and isinstance(right, Bounded):
            low, high = interval(op, self._number(left), self._number(right))
            value, bound = mul(left.value, right.value), mul(left.bound, right.bound)
            return Bounded(value, bound, low, high, is_shifted=True)
        if op == "+" and isinstance(right, Bounded) and not isinstance(left, Bounded):
            left, right = right, left
        if op not in ("+", "-") or not isinstance(left, Bounded) or isinstance(right, Bounded):
            return None
        if not isinstance(right, Dim | Scalar) or (isinstance(right, Scalar) and right.type not in INTEGER):
            return None
        number = self._number(right)
        low, high = interval(op, self._number(left), number)
        by = right if isinstance(right, Dim) else Dim(None, number.text)
        value = (add if op == "+" else sub)(left.value, by)
        return Bounded(value, left.bound, low, high, is_shifted=True)

    def _of_spans(self, e: tree.Binary, left: Value, right: Value) -> Several:
        """`x.span / {#i, #j}`: part by part."""
        parts = [v.items if isinstance(v, Several) else None for v in (left, right)]
        rank = max(len(p) for p in parts if p is not None)
        columns: list[list[Dim]] = []
        for value, items, side in zip((left, right), parts, (e.left, e.right), strict=True):
            each = items if items is not None else (value,) * rank
            if len(each) != rank:
                raise ChoreoError(f"`{e.op}` needs spans of one rank", e.span)
            for item in each:
                if isinstance(item, Data | Future) or (isinstance(item, Scalar) and item.type in FRACTIONS):
                    raise ChoreoError("only integers and spans can be combined with a span", side.span)
            columns.append([i if isinstance(i, Dim) else Dim(None, self._number(i).text) for i in each])
        return Several(tuple(self.fold(e.op, a, b, e.span) for a, b in zip(*columns, strict=True)))
