"""Data in expressions: tiles, other shapes, elements, with the checks of rank, bounds and divisibility."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span

from .shapes import ONE, Dim, add, contiguous, dim, div, is_contiguous, mod, mul, product, same, shown, sub
from .values import Bounded, Buffers, Data, Events, Future, Scalar

HALVES = ("f16", "bf16")
FRACTIONS = ("float", "double", *HALVES, "f32", "f64")


class DataExpressions:
    """The part of expressions that speaks of data; the other part gives it numbers."""

    value: Any
    dim: Any
    shape: Any
    _named: Any
    _number: Any
    _flat: Any
    _check: Any
    _quoted: Any
    keep: Callable[[str], Dim]  # computes a number once, before the statement
    checked: bool
    guarded: bool = False  # inside a condition, which may keep indices within bounds

    # -- data ------------------------------------------------------------------------------------------

    def _spanned(self, e: tree.Expr) -> Data:
        """Something with a shape: data, or a future, whose shape is known before its data is there."""
        value = self.value(e)
        if isinstance(value, Future) and value.data is not None:
            return value.data
        if isinstance(value, Buffers):
            return value.first
        if isinstance(value, Data):
            return value
        raise ChoreoError("this has no span", e.span)

    def data(self, e: tree.Expr) -> Data:
        match e:
            case tree.Name():
                value = self._named(e)
                if isinstance(value, Buffers):
                    raise ChoreoError(f"`{e.id}` is an array of buffers; name one of them: {e.id}[…]", e.span)
                if isinstance(value, Future):
                    if value.data is None:
                        raise ChoreoError(f"`{e.id}` holds no data yet", e.span)
                    return value.data
                if not isinstance(value, Data):
                    raise ChoreoError(f"`{e.id}` is not data", e.span)
                return value
            case tree.Derive() | tree.Builtin(name="select"):
                value = self.value(e)
                found = value.data if isinstance(value, Future) else value
                if not isinstance(found, Data):
                    raise ChoreoError("expected data here", e.span)
                return found
            case tree.Member(name="data"):
                future = self.value(e.of)
                if isinstance(future, Data):  # of a buffer, its data is itself
                    return future
                if not isinstance(future, Future):
                    raise ChoreoError("only a future has .data", e.span)
                if future.data is None:
                    raise ChoreoError("no data has been copied into it yet", e.span)
                return future.data
            case tree.ChunkAt():
                return self._chunk(self.data(e.of), None, e.index, e.span)
            case tree.Tile(kind="chunk"):
                return self._chunk(self.data(e.of), e.sizes, e.index, e.span)
            case tree.Tile(kind="subspan", steps=(), strides=()) if e.index:
                return self._subspan(self.data(e.of), e.sizes, e.index, e.span)
            case tree.Tile():
                return self._window(self.data(e.of), e)
            case tree.SpanAs():
                return self._span_as(self.data(e.of), self.shape(e.dims, e.span), e.span)
        raise ChoreoError("expected data here", e.span)

    def array_item(self, e: tree.Derive) -> Data | Buffers | Events | None:
        """`x[i][j]` of an array of buffers or of events; None when it is a span that is derived."""
        chain: list[tree.Derive] = []
        inner: tree.Expr = e
        while isinstance(inner, tree.Derive):
            chain.insert(0, inner)
            inner = inner.of
        of = self._named(inner) if isinstance(inner, tree.Name) else None
        if not isinstance(of, Buffers | Events):
            return None
        counts, flat = of.counts, dim(0)
        if len(chain) > len(counts):
            raise ChoreoError(f"{len(chain)} indices for an array of rank {len(counts)}", e.span)
        for one, count in zip(chain, counts, strict=False):
            if len(one.items) != 1:
                raise ChoreoError("one index in each pair of brackets: x[i][j]", one.span)
            item = one.items[0]
            plain = tree.Int(item.index, span=item.span) if isinstance(item, tree.Extent) else item
            number = self._number(self._flat(plain)[0])
            if number.type in FRACTIONS:
                raise ChoreoError(f"an index must be an integer, not {number.type}", one.span)
            outside = count.value is not None and _outside(number, count.value)
            if outside and not self.guarded:
                raise ChoreoError(
                    f"index {_range(number)} is out of bounds for an array of {count}", one.span
                )
            if outside or number.low is None or number.high is None or count.value is None:
                number = self._within(
                    number, count, one.span, "buffers" if isinstance(of, Buffers) else "events"
                )
            flat = add(mul(flat, count), _as_dim(number))
        rest = counts[len(chain) :]
        flat = mul(flat, product(rest))
        if isinstance(of, Events):
            return replace(of, counts=rest, offset=flat)
        first = replace(of.first, offset=mul(flat, product(of.first.shape)))
        return Buffers(first, rest) if rest else first

    def _indices(self, items: tuple[tree.Expr, ...]) -> list[tuple[Bounded | Scalar | None, Span]]:
        """Index expressions one by one; None where a whole dimension is meant."""
        found: list[tuple[Bounded | Scalar | None, Span]] = []
        for item in items:
            if isinstance(item, tree.Whole):
                found.append((None, item.span))
                continue
            for each in self._flat(item):
                number = each if isinstance(each, Bounded) else self._number(each)
                if isinstance(number, Scalar) and number.type in FRACTIONS:
                    raise ChoreoError(f"an index must be an integer, not {number.type}", item.span)
                found.append((number, item.span))
        return found

    def _chunk(
        self, data: Data, counts: tuple[tree.Expr, ...] | None, index: tuple[tree.Expr, ...], span: Span
    ) -> Data:
        indices = self._indices(index)
        given = None
        if counts is not None:  # `_` is one chunk
            given = tuple(
                d for c in counts for d in ((ONE,) if isinstance(c, tree.Whole) else self.shape((c,), c.span))
            )
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
            # A count that is made from a quotient of the extent says itself that something is left.
            if count.value is not None or f"{extent.atom} / " not in count.text:
                self._divides(extent, count, where)
            size = div(extent, count)
            shape.append(size)
            if isinstance(at, Bounded) and at.is_shifted:
                at = self._number(at)
            number = at.value if isinstance(at, Bounded) else Dim(None, at.text)
            if not isinstance(at, Bounded) and at.high is not None and at.low == at.high:
                number = dim(at.high)
            outside = isinstance(at, Scalar) and count.value is not None and _outside(at, count.value)
            if isinstance(at, Scalar) and outside and not self.guarded:
                raise ChoreoError(f"chunk {_range(at)} is out of range: there are {count} chunks", where)
            if isinstance(at, Scalar) and (outside or _is_unproven(at, at, count)):
                number = Dim(None, self._within(at, count, where, "chunks").text)
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
        given = self._sizes(sizes)
        extents = tuple(size or data.shape[min(i, len(data.shape) - 1)] for i, size in enumerate(given))
        indices = self._indices(index)
        if len(extents) != len(data.shape) or len(indices) != len(data.shape):
            raise ChoreoError(f"a tile of rank {len(extents)} in data of rank {len(data.shape)}", span)
        offset = data.offset
        for (at, where), size, extent, stride in zip(indices, extents, data.shape, data.strides, strict=True):
            if at is None:
                continue
            number = self._number(at)
            last = None if number.high is None or size.value is None else (number.high + 1) * size.value
            beyond = last is not None and extent.value is not None and last > extent.value
            beyond = beyond or (number.low is not None and number.low < 0)
            if beyond and not self.guarded:
                if number.low is not None and number.low < 0:
                    raise ChoreoError(f"tile {_range(number)} is below 0", where)
                raise ChoreoError(f"the tile ends at {last}, but there are only {extent} elements", where)
            if beyond or last is None or extent.value is None:
                tiles = div(extent, size)
                if not (isinstance(at, Bounded) and not at.is_shifted and same(at.bound, tiles)):
                    number = self._within(number, tiles, where, "tiles")
            offset = add(offset, mul(mul(_as_dim(number), size), stride))
        return replace(data, offset=offset, shape=extents, is_dense=False)

    def _sizes(self, items: tuple[tree.Expr, ...]) -> list[Dim | None]:
        """Sizes one by one; None where a whole dimension is meant."""
        found: list[Dim | None] = []
        for item in items:
            found += [None] if isinstance(item, tree.Whole) else self.shape((item,), item.span)
        return found

    def _window(self, data: Data, e: tree.Tile) -> Data:
        """`subspan` with steps or strides, `modspan`, `view`: elements that lie at equal distances."""
        indices = self._indices(e.index) if e.index else [(dim(0), e.span) for _ in data.shape]
        sizes = self._sizes(e.sizes)
        for given in (sizes, e.steps, e.strides, indices):
            if (given or given is sizes) and len(given) != len(data.shape):
                raise ChoreoError(f"a tile of rank {len(given)} in data of rank {len(data.shape)}", e.span)
        offset, shape, strides = data.offset, [], []
        for i, ((at, where), extent, apart) in enumerate(zip(indices, data.shape, data.strides, strict=True)):
            size = sizes[i]
            if size is None:
                shape.append(extent)
                strides.append(apart)
                continue
            gap = self._positive(self.dim(e.strides[i]), "stride", e.strides[i].span) if e.strides else ONE
            step = (
                self._positive(self.dim(e.steps[i]), "step", e.steps[i].span)
                if e.steps
                else ONE
                if e.kind == "view"
                else size
            )
            if e.kind == "modspan":
                size = mod(extent, self._positive(size, "size", e.sizes[0].span))
                if size.value == 0 and not self.guarded:
                    message = f"nothing is left: {extent} elements divide into tiles of {step}"
                    raise ChoreoError(message, where)
            elif e.kind == "subspan" and (size.value is None or extent.value is None):
                size = self._fitting(size, extent, where)
            reach = add(mul(sub(size, ONE), gap), ONE)
            places = div(add(sub(extent, reach), step), step)
            number = self._number(dim(0) if at is None else at)
            if places.value is not None and _outside(number, places.value) and not self.guarded:
                message = f"tile {_range(number)} is out of range: {extent} elements have {places} such tiles"
                raise ChoreoError(message, where)
            if places.value is None or number.high is None or _outside(number, places.value):
                number = self._within(number, places, where, "tiles")
            offset = add(offset, mul(mul(_as_dim(number), step), apart))
            shape.append(size)
            strides.append(mul(apart, gap))
        return replace(data, offset=offset, shape=tuple(shape), strides=tuple(strides), is_dense=False)

    def _positive(self, found: Dim, what: str, span: Span) -> Dim:
        if found.value is None:
            message = self._quoted(f"a {what} must be above 0", span)
            return self.keep(f"choreo::positive({found.text}, {message})")
        if found.value < 1:
            raise ChoreoError(f"a {what} must be above 0, not {found}", span)
        return found

    def _fitting(self, size: Dim, extent: Dim, span: Span) -> Dim:
        if not self.checked or same(size, extent) is True:
            return size
        message = self._quoted(f"a tile of {size} is larger than {extent} elements", span)
        return self.keep(f"choreo::fitting({size}, {extent}, {message})")

    def _span_as(self, data: Data, shape: tuple[Dim, ...], span: Span) -> Data:
        if not data.is_dense and not is_contiguous(data.shape, data.strides):
            raise ChoreoError("only contiguous data can get another shape", span)
        equal = same(product(data.shape), product(shape))
        if equal is False:
            raise ChoreoError(
                f"{shown(data.shape)} cannot become {shown(shape)}: the number of elements differs", span
            )
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
            if number.low is not None and number.low < 0 and not self.guarded:
                raise ChoreoError(f"index {_range(number)} is below 0", where)
            beyond = extent.value is not None and number.high is not None and number.high >= extent.value
            if beyond and not self.guarded:
                message = f"index {_range(number)} is out of bounds for {extent} elements"
                raise ChoreoError(message, where)
            doubted = _is_unproven(at, number, extent) or self._may_be_outside(number, extent)
            place = self._within(number, extent, where) if doubted else number
            offset = add(offset, mul(_as_dim(place), stride))
        return Scalar(f"{data.pointer}[{offset.text}]", data.element)

    def _may_be_outside(self, number: Scalar, extent: Dim) -> bool:
        """Whether a condition around it must be what keeps an index within bounds."""
        return self.guarded and extent.value is not None and _outside(number, extent.value)

    def _within(self, number: Scalar, extent: Dim, span: Span, what: str = "elements") -> Scalar:
        """An index that is checked when the program runs; one that is out of bounds does no harm."""
        if not self.checked:
            return number
        message = f"an index is out of bounds for {extent} {what}"
        return Scalar(f"choreo::within({number.text}, {extent}, {self._quoted(message, span)})", "s64")


def _is_unproven(at: Bounded | Scalar, number: Scalar, extent: Dim) -> bool:
    """Whether an index is not known to be within bounds."""
    is_own = isinstance(at, Bounded) and not at.is_shifted and same(at.bound, extent) is True
    if isinstance(at, Bounded) and is_own and at.low is not None and at.low >= 0:
        return False
    return number.low is None or number.high is None or extent.value is None


def _as_dim(number: Scalar) -> Dim:
    if number.low is not None and number.low == number.high:
        return dim(number.low)
    return Dim(None, number.text)


def _range(number: Scalar) -> str:
    return str(number.low) if number.low == number.high else f"{number.low}..{number.high}"


def _outside(number: Scalar, count: int) -> bool:
    return (number.low is not None and number.low < 0) or (number.high is not None and number.high >= count)
