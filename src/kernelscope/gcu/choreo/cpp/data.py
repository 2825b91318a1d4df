"""Data in expressions: tiles, other shapes, elements, with the checks of rank, bounds and divisibility."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import nodes

from .shapes import Dim, add, contiguous, dim, is_contiguous, mul, product, same, shown
from .sizes.tiles import Tiles, as_dim, is_unproven, outside, shown_range
from .values import FRACTIONS, Buffers, Data, Events, Future, Scalar, Scope
from .words.advice import OF_ELEMENTS, of_undeclared_call


class DataExpressions(Tiles):
    """The part of expressions that speaks of data; the other part gives it numbers."""

    value: Any
    scope: Scope
    _named: Any

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
                return self.chunk(self.data(e.of), None, e.index, e.span)
            case tree.Tile(kind="chunk"):
                return self.chunk(self.data(e.of), e.sizes, e.index, e.span)
            case tree.Tile(kind="subspan", steps=(), strides=()) if e.index:
                return self.subspan(self.data(e.of), e.sizes, e.index, e.span)
            case tree.Tile():
                return self.window(self.data(e.of), e)
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
            is_outside = count.value is not None and outside(number, count.value)
            if is_outside and not self.guarded:
                raise ChoreoError(
                    f"index {shown_range(number)} is out of bounds for an array of {count}", one.span
                )
            if is_outside or number.low is None or number.high is None or count.value is None:
                number = self.within(
                    number, count, one.span, "buffers" if isinstance(of, Buffers) else "events"
                )
            flat = add(mul(flat, count), as_dim(number))
        rest = counts[len(chain) :]
        flat = mul(flat, product(rest))
        if isinstance(of, Events):
            return replace(of, counts=rest, offset=flat)
        first = replace(of.first, offset=mul(flat, product(of.first.shape)))
        return Buffers(first, rest) if rest else first

    def refuse_element(self, e: tree.Derive | tree.Item) -> None:
        """`x[1]` and `x(1)` of data: as spans they would be numbers, but elements are meant."""
        if isinstance(e, tree.Derive) and any(isinstance(each, tree.Extent) for each in nodes(e.items)):
            return
        inner = e.of
        while isinstance(inner, tree.Derive):
            inner = inner.of
        if not isinstance(inner, tree.Name):
            return
        known = self.scope.find(inner.id)
        if known is None and isinstance(e, tree.Item):
            raise ChoreoError(of_undeclared_call(inner.id), e.span)
        if isinstance(known, Data | Future):
            raise ChoreoError(OF_ELEMENTS, e.span)

    def _span_as(self, data: Data, shape: tuple[Dim, ...], span: Span) -> Data:
        if not data.is_dense and not is_contiguous(data.shape, data.strides):
            raise ChoreoError("only contiguous data can get a different shape", span)
        equal = same(product(data.shape), product(shape))
        if equal is False:
            raise ChoreoError(
                f"{shown(data.shape)} cannot become {shown(shape)}: the number of elements differs", span
            )
        if equal is None:
            condition = f"{product(data.shape).text} == {product(shape).text}"
            self.hold(condition, f"span_as from {shown(data.shape)} to {shown(shape)}", span)
        return replace(data, shape=shape, strides=contiguous(shape))

    def element(self, e: tree.At) -> Scalar:
        """A C++ lvalue for one element."""
        data = self.data(e.of)
        indices = self.indices(e.index)
        if len(indices) != len(data.shape):
            raise ChoreoError(f"{len(indices)} indices for data of rank {len(data.shape)}", e.span)
        offset = data.offset
        for (at, where), extent, stride in zip(indices, data.shape, data.strides, strict=True):
            if at is None:
                raise ChoreoError("`_` does not name an element", where)
            number = self._number(at)
            if number.low is not None and number.low < 0 and not self.guarded:
                raise ChoreoError(f"index {shown_range(number)} is below 0", where)
            beyond = extent.value is not None and number.high is not None and number.high >= extent.value
            if beyond and not self.guarded:
                message = f"index {shown_range(number)} is out of bounds for {extent} elements"
                raise ChoreoError(message, where)
            doubted = is_unproven(at, number, extent) or self._may_be_outside(number, extent)
            place = self.within(number, extent, where) if doubted else number
            offset = add(offset, mul(as_dim(place), stride))
        return Scalar(f"{data.pointer}[{offset.text}]", data.element)

    def _may_be_outside(self, number: Scalar, extent: Dim) -> bool:
        """Whether a condition around it must be what keeps an index within bounds."""
        return self.guarded and extent.value is not None and outside(number, extent.value)
