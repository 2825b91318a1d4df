"""Data in expressions: tiles, other shapes, elements, with the checks of rank, bounds and divisibility."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span

from .shapes import Dim, add, contiguous, dim, div, mod, mul, product, same, shown
from .values import Bounded, Data, Future, Scalar

FRACTIONS = ("float", "double", "f16", "bf16", "f32", "f64")


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
    checked: bool

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
                    raise ChoreoError("no data has been copied into it yet", e.span)
                return future.data
            case tree.ChunkAt():
                return self._chunk(self.data(e.of), None, e.index, e.span)
            case tree.Tile(kind="chunk"):
                return self._chunk(self.data(e.of), e.sizes, e.index, e.span)
            case tree.Tile():
                return self._subspan(self.data(e.of), e.sizes, e.index, e.span)
            case tree.SpanAs():
                return self._span_as(self.data(e.of), self.shape(e.dims), e.span)
        raise ChoreoError("expected data here", e.span)

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
                raise ChoreoError(f"chunk {_range(at)} is out of range: there are {count} chunks", where)
            if isinstance(at, Scalar) and _is_unproven(at, at, count):
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
                raise ChoreoError(f"the tile ends at {last}, but there are only {extent} elements", where)
            if last is None or extent.value is None:
                tiles = div(extent, size)
                if not (isinstance(at, Bounded) and same(at.bound, tiles)):
                    number = self._within(number, tiles, where, "tiles")
            offset = add(offset, mul(mul(_as_dim(number), size), stride))
        return replace(data, offset=offset, shape=extents, is_dense=False)

    def _span_as(self, data: Data, shape: tuple[Dim, ...], span: Span) -> Data:
        if not data.is_dense and any(
            same(a, b) is not True for a, b in zip(data.strides, contiguous(data.shape), strict=True)
        ):
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
            if number.low is not None and number.low < 0:
                raise ChoreoError(f"index {_range(number)} is below 0", where)
            if extent.value is not None and number.high is not None and number.high >= extent.value:
                message = f"index {_range(number)} is out of bounds for {extent} elements"
                raise ChoreoError(message, where)
            place = self._within(number, extent, where) if _is_unproven(at, number, extent) else number
            offset = add(offset, mul(_as_dim(place), stride))
        return Scalar(f"{data.pointer}[{offset.text}]", data.element)

    def _within(self, number: Scalar, extent: Dim, span: Span, what: str = "elements") -> Scalar:
        """An index that is checked when the program runs; one that is out of bounds does no harm."""
        if not self.checked:
            return number
        message = f"an index is out of bounds for {extent} {what}"
        return Scalar(f"choreo::within({number.text}, {extent}, {self._quoted(message, span)})", "s64")


def _is_unproven(at: Bounded | Scalar, number: Scalar, extent: Dim) -> bool:
    """Whether an index is not known to be within bounds."""
    if isinstance(at, Bounded) and at.low is not None and at.low >= 0 and same(at.bound, extent):
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
