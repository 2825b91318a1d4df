"""Expressions to C++, with the checks of rank, bounds and divisibility."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import tree
from .errors import ChoreoError, Span
from .shapes import Dim, add, contiguous, dim, div, mod, mul, product, same, shown, sub
from .values import Bounded, Data, Future, Scalar, Scope, Several, Value, bounded

# name → how many arguments
BUILTINS = {
    **dict.fromkeys(
        [
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "floor",
            "ceil",
            "round",
            "trunc",
            "abs",
            "sign",
            "sigmoid",
            "isnan",
            "isinf",
            "lgamma",
            "neg",
            "bitnot",
        ],
        1,
    ),
    **dict.fromkeys(["max", "min", "pow", "atan2", "fmod", "remainder", "floordiv", "copysign"], 2),
    **{f"cast_{element}": 1 for element in (*tree.ELEMENTS, "bool")},
    "inf": 0,
    "nan": 0,
}
_INTEGER = ("int", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bool")
Check = Callable[[str, str, Span], None]  # emits a check that the running program makes


class Expressions:
    """Turns expressions into C++ within a scope."""

    def __init__(self, scope: Scope, check: Check) -> None:
        self.scope = scope
        self._check = check

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
            raise ChoreoError(f"there are {len(items)} parts, so ({index}) is none of them", e.span)
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
        condition, a, b = (self.text(arg) for arg in e.args)
        return Scalar(f"({condition} ? {a} : {b})")

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
        raise ChoreoError("a single number is needed here", e.span)

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
        raise ChoreoError("an integer is needed here", e.span)

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
                raise ChoreoError("nothing is known of its shape yet", e.span)
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
                then, other = self.scalar(e.then), self.scalar(e.other)
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

    # -- data ------------------------------------------------------------------------------------------

    def _spanned(self, e: tree.Expr) -> Data:
        """Something with a shape: data, or a future, whose shape is known before its data is there."""
        value = self.value(e)
        if isinstance(value, Future) and value.data is not None:
            return value.data
        if isinstance(value, Data):
            return value
        raise ChoreoError("this has no span", e.span)

    def data(self, e: tree.Expr) -> Data:
        match e:
            case tree.Name():
                value = self._named(e)
                if isinstance(value, Future):
                    raise ChoreoError(f"`{e.id}` is a future; its data is `{e.id}.data`", e.span)
                if not isinstance(value, Data):
                    raise ChoreoError(f"`{e.id}` is not data", e.span)
                return value
            case tree.Member(name="data"):
                future = self.value(e.of)
                if not isinstance(future, Future):
                    raise ChoreoError("only a future has .data", e.span)
                if future.data is None:
                    raise ChoreoError("nothing has been copied there yet", e.span)
                return future.data
            case tree.ChunkAt():
                return self._chunk(self.data(e.of), None, e.index, e.span)
            case tree.Tile(kind="chunk"):
                return self._chunk(self.data(e.of), e.sizes, e.index, e.span)
            case tree.Tile():
                return self._subspan(self.data(e.of), e.sizes, e.index, e.span)
            case tree.SpanAs():
                return self._span_as(self.data(e.of), self.shape(e.dims), e.span)
        raise ChoreoError("data is needed here", e.span)

    def _indices(self, items: tuple[tree.Expr, ...]) -> list[tuple[Bounded | Scalar | None, Span]]:
        """Index expressions one by one; None where a whole dimension is meant."""
        found: list[tuple[Bounded | Scalar | None, Span]] = []
        for item in items:
            if isinstance(item, tree.Whole):
                found.append((None, item.span))
                continue
            for each in self._flat(item):
                found.append((each if isinstance(each, Bounded) else self._number(each), item.span))
        return found

    def _chunk(
        self, data: Data, counts: tuple[tree.Expr, ...] | None, index: tuple[tree.Expr, ...], span: Span
    ) -> Data:
        indices = self._indices(index)
        given = None if counts is None else self.shape(counts)
        if len(indices) != len(data.shape) or (given is not None and len(given) != len(data.shape)):
            n = len(indices) if given is None else len(given)
            raise ChoreoError(f"{n} chunk indices for data of rank {len(data.shape)}", span)
        offset, shape = data.offset, []
        for place, ((at, where), extent, stride) in enumerate(
            zip(indices, data.shape, data.strides, strict=True)
        ):
            if at is None:
                shape.append(extent)
                continue
            if given is not None:
                count = given[place]
            elif isinstance(at, Bounded):
                count = at.bound
            else:
                raise ChoreoError("chunkat needs bounded variables; use chunk(n).at(i) or subspan", where)
            self._divides(extent, count, where)
            size = div(extent, count)
            shape.append(size)
            number = at.value if isinstance(at, Bounded) else Dim(None, at.text)
            if not isinstance(at, Bounded) and at.high is not None and at.low == at.high:
                number = dim(at.high)
            if isinstance(at, Scalar) and count.value is not None and _outside(at, count.value):
                raise ChoreoError(f"chunk {_range(at)} of {count} chunks", where)
            offset = add(offset, mul(mul(number, size), stride))
        return replace(data, offset=offset, shape=tuple(shape), is_dense=False)

    def _divides(self, extent: Dim, count: Dim, span: Span) -> None:
        rest = mod(extent, count)
        if rest.value is None:
            self._check(f"{rest.text} == 0", f"{extent} elements do not divide into {count} chunks", span)
        elif rest.value:
            raise ChoreoError(
                f"{extent} elements do not divide into {count} chunks: {rest} would be lost", span
            )

    def _subspan(
        self, data: Data, sizes: tuple[tree.Expr, ...], index: tuple[tree.Expr, ...], span: Span
    ) -> Data:
        extents = tuple(
            data.shape[i] if isinstance(size, tree.Whole) else self.dim(size) for i, size in enumerate(sizes)
        )
        indices = self._indices(index)
        if len(extents) != len(data.shape) or len(indices) != len(data.shape):
            raise ChoreoError(f"a tile of rank {len(extents)} in data of rank {len(data.shape)}", span)
        offset = data.offset
        for (at, where), size, extent, stride in zip(indices, extents, data.shape, data.strides, strict=True):
            if at is None:
                continue
            number = self._number(at)
            last = None if number.high is None or size.value is None else (number.high + 1) * size.value
            if last is not None and extent.value is not None and last > extent.value:
                raise ChoreoError(f"the tile reaches {last}, beyond the {extent} elements there are", where)
            offset = add(offset, mul(mul(_as_dim(number), size), stride))
        return replace(data, offset=offset, shape=extents, is_dense=False)

    def _span_as(self, data: Data, shape: tuple[Dim, ...], span: Span) -> Data:
        if not data.is_dense and any(
            same(a, b) is not True for a, b in zip(data.strides, contiguous(data.shape), strict=True)
        ):
            raise ChoreoError("only data that lies in one piece can get another shape", span)
        equal = same(product(data.shape), product(shape))
        if equal is False:
            raise ChoreoError(f"{shown(data.shape)} cannot become {shown(shape)}: not as many elements", span)
        if equal is None:
            condition = f"{product(data.shape).text} == {product(shape).text}"
            self._check(condition, f"span_as from {shown(data.shape)} to {shown(shape)}", span)
        return replace(data, shape=shape, strides=contiguous(shape))

    def element(self, e: tree.At) -> Scalar:
        """A C++ lvalue for one element."""
        data = self.data(e.of)
        indices = self._indices(e.index)
        if len(indices) != len(data.shape):
            raise ChoreoError(f"{len(indices)} indices for data of rank {len(data.shape)}", e.span)
        offset = data.offset
        for (at, where), extent, stride in zip(indices, data.shape, data.strides, strict=True):
            if at is None:
                raise ChoreoError("`_` does not name an element", where)
            number = self._number(at)
            if number.low is not None and number.low < 0:
                raise ChoreoError(f"index {_range(number)} is below 0", where)
            if extent.value is not None and number.high is not None and number.high >= extent.value:
                message = f"index {_range(number)} is out of bounds for {extent} elements"
                raise ChoreoError(message, where)
            offset = add(offset, mul(_as_dim(number), stride))
        return Scalar(f"{data.pointer}[{offset.text}]", data.element)


def _as_dim(number: Scalar) -> Dim:
    if number.low is not None and number.low == number.high:
        return dim(number.low)
    return Dim(None, number.text)


def _range(number: Scalar) -> str:
    return str(number.low) if number.low == number.high else f"{number.low}..{number.high}"


def _outside(number: Scalar, count: int) -> bool:
    return (number.low is not None and number.low < 0) or (number.high is not None and number.high >= count)


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
            return (
                None if a.low is None else a.low // b.low,
                None if a.high is None else a.high // b.low,
            )
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
