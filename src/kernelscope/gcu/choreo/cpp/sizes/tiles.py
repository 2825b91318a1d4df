"""Tiles of data: `chunkat`, `chunk`, `subspan`, `modspan`, `view`, and that they are within it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeGuard

from kernelscope.gcu.choreo.cpp.shapes import ONE, Dim, add, dim, div, mod, mul, same, sub
from kernelscope.gcu.choreo.cpp.values import FRACTIONS, Bounded, Data, Scalar
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span


class Tiles:
    """The part of expressions that speaks of parts of data; the other parts give it numbers."""

    dim: Any
    shape: Any
    _number: Any
    _flat: Any
    hold: Any
    _quoted: Any
    keep: Callable[[str], Dim]  # computes a number once, before the statement
    checked: bool
    guarded: bool = False  # inside a condition, which may keep indices within bounds

    def indices(self, items: tuple[tree.Expr, ...]) -> list[tuple[Bounded | Scalar | None, Span]]:
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

    def chunk(
        self, data: Data, counts: tuple[tree.Expr, ...] | None, index: tuple[tree.Expr, ...], span: Span
    ) -> Data:
        indices = self.indices(index)
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
            elif not self._counts_itself(at):
                self.hold(f"{count.atom} > 0", f"{extent} elements have 0 chunks", where)
            size = div(extent, count)
            shape.append(size)
            if isinstance(at, Bounded) and at.is_shifted:
                at = self._number(at)
            number = at.value if isinstance(at, Bounded) else Dim(None, at.text)
            if not isinstance(at, Bounded) and at.high is not None and at.low == at.high:
                number = dim(at.high)
            is_outside = isinstance(at, Scalar) and count.value is not None and outside(at, count.value)
            if isinstance(at, Scalar) and is_outside and not self.guarded:
                raise ChoreoError(f"chunk {shown_range(at)} is out of range: there are {count} chunks", where)
            if isinstance(at, Scalar) and (is_outside or is_unproven(at, at, count)):
                number = Dim(None, self.within(at, count, where, "chunks").text)
            offset = add(offset, mul(mul(number, size), stride))
        return replace(data, offset=offset, shape=tuple(shape), is_dense=False)

    def _counts_itself(self, at: Bounded | Scalar) -> TypeGuard[Bounded]:
        """Whether it is the variable of a loop, which is not entered when it has no bound."""
        return isinstance(at, Bounded) and not at.is_shifted and at.value.value is None

    def _divides(self, extent: Dim, count: Dim, span: Span) -> None:
        if count.value is not None and count.value < 1:
            raise ChoreoError(f"there must be at least 1 chunk, not {count}", span)
        rest = mod(extent, count)
        if rest.value is None:
            message = f"{extent} elements do not divide into {count} chunks"
            self.hold(f"{count.atom} > 0 && {rest.text} == 0", message, span)
        elif rest.value:
            raise ChoreoError(
                f"{extent} elements do not divide into {count} chunks: {rest} would be lost", span
            )

    def subspan(
        self, data: Data, sizes: tuple[tree.Expr, ...], index: tuple[tree.Expr, ...], span: Span
    ) -> Data:
        given = self._sizes(sizes)
        extents = tuple(size or data.shape[min(i, len(data.shape) - 1)] for i, size in enumerate(given))
        indices = self.indices(index)
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
                    raise ChoreoError(f"tile {shown_range(number)} is below 0", where)
                raise ChoreoError(f"the tile ends at {last}, but there are only {extent} elements", where)
            if size.value is not None and size.value < 1:
                raise ChoreoError(f"a size must be above 0, not {size}", where)
            if beyond or last is None or extent.value is None:
                tiles = div(extent, size)
                if not (self._counts_itself(at) and same(at.bound, tiles)):
                    self._fits(size, extent, where)
                    number = self.within(number, tiles, where, "tiles")
            offset = add(offset, mul(mul(as_dim(number), size), stride))
        return replace(data, offset=offset, shape=extents, is_dense=False)

    def _sizes(self, items: tuple[tree.Expr, ...]) -> list[Dim | None]:
        """Sizes one by one; None where a whole dimension is meant."""
        found: list[Dim | None] = []
        for item in items:
            found += [None] if isinstance(item, tree.Whole) else self.shape((item,), item.span)
        return found

    def window(self, data: Data, e: tree.Tile) -> Data:
        """`subspan` with steps or strides, `modspan`, `view`: elements that lie at equal distances."""
        indices = self.indices(e.index) if e.index else [(dim(0), e.span) for _ in data.shape]
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
            if places.value is not None and outside(number, places.value) and not self.guarded:
                one = f"tile {shown_range(number)} is out of range"
                message = f"{one}: {extent} elements have {places} such tiles"
                raise ChoreoError(message, where)
            if places.value is None or number.high is None or outside(number, places.value):
                number = self.within(number, places, where, "tiles")
            offset = add(offset, mul(mul(as_dim(number), step), apart))
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

    def _fits(self, size: Dim, extent: Dim, span: Span) -> None:
        if not self.checked or (same(size, extent) is True and size.value is not None):
            return
        above, below = f"{size.atom} > 0", f"{size.atom} <= {extent.atom}"
        conditions = [c for c, d in ((above, size), (below, extent)) if d.value is None or c is below]
        message = f"a tile of {size} does not fit into {extent} elements"
        self.hold(" && ".join(conditions), message, span)

    def _fitting(self, size: Dim, extent: Dim, span: Span) -> Dim:
        if not self.checked or same(size, extent) is True:
            return size
        message = self._quoted(f"a tile of {size} is larger than {extent} elements", span)
        return self.keep(f"choreo::fitting({size}, {extent}, {message})")

    def within(self, number: Scalar, extent: Dim, span: Span, what: str = "elements") -> Scalar:
        """An index that is checked when the program runs; one that is out of bounds does no harm."""
        if not self.checked:
            return number
        message = f"an index is out of bounds for {extent} {what}"
        return Scalar(f"choreo::within({number.text}, {extent}, {self._quoted(message, span)})", "s64")


def is_unproven(at: Bounded | Scalar, number: Scalar, extent: Dim) -> bool:
    """Whether an index is not known to be within bounds."""
    is_own = isinstance(at, Bounded) and not at.is_shifted and same(at.bound, extent) is True
    if isinstance(at, Bounded) and is_own and at.low is not None and at.low >= 0:
        return False
    return number.low is None or number.high is None or extent.value is None


def as_dim(number: Scalar) -> Dim:
    if number.low is not None and number.low == number.high:
        return dim(number.low)
    return Dim(None, number.text)


def shown_range(number: Scalar) -> str:
    return str(number.low) if number.low == number.high else f"{number.low}..{number.high}"


def outside(number: Scalar, count: int) -> bool:
    return (number.low is not None and number.low < 0) or (number.high is not None and number.high >= count)
