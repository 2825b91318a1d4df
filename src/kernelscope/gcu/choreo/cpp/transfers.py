"""DMA operations and futures to C++."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelscope.gcu.choreo.cpp.declared.aliases import Aliases
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.printer import expr

from .shapes import ONE, Dim, add, contiguous, dim, is_contiguous, mul, product, same, shown, sub
from .values import Data, Future, Scope, cpp_name

if TYPE_CHECKING:
    from .expressions import Expressions


@dataclass(frozen=True)
class Padding:
    """How much `dma.pad` puts before, behind and between the elements of each dimension, and what."""

    low: tuple[Dim, ...]
    high: tuple[Dim, ...]
    between: tuple[Dim, ...]
    value: str  # C++

    def extent(self, place: int, extent: Dim) -> Dim:
        """How long a dimension becomes."""
        if self.between[place].value == 0:
            gaps = dim(0)
        elif extent.value is not None:
            gaps = mul(dim(max(extent.value - 1, 0)), self.between[place])
        else:
            gaps = mul(dim(f"choreo::max_({sub(extent, ONE)}, int64_t(0))"), self.between[place])
        return add(add(add(self.low[place], extent), gaps), self.high[place])


class Transfers:
    """The part of a function's body that moves data."""

    lines: list[str]
    copies: list[str]
    aliases: Aliases
    expressions: Expressions
    as_threads: bool  # whether threads, and copies that are asynchronous, run at once
    _depth: int

    @property
    def in_team(self) -> bool: ...  # type: ignore[empty-body]

    # What the other part provides.
    @property
    def scope(self) -> Scope: ...  # type: ignore[empty-body]
    def emit(self, line: str) -> None: ...
    def _mark(self, line: int) -> None: ...
    def fresh(self, stem: str) -> str: ...  # type: ignore[empty-body]
    def _pinned(self, data: Data) -> Data: ...  # type: ignore[empty-body]
    def allocate(self, name: str, element: str, shape: tuple[Dim, ...], scope: str) -> None: ...
    def hold(self, condition: str, message: str, span: Span) -> None: ...

    def local(self, name: str) -> str:
        """The C++ name of something new; another one when an outer name would be hidden."""
        taken = self.scope.find(name) is not None
        return self.fresh(cpp_name(name)) if taken else cpp_name(name)

    def future(self, name: str, d: tree.Dma, span: Span, *, in_place: bool, moving: bool) -> None:
        """`name = dma.…`."""
        known = self.scope.find(name)
        if known is not None and not isinstance(known, Future):
            raise ChoreoError(f"`{name}` is already declared, and not as a future", span)
        if d.kind == "any":
            if known is None:
                self._placeholder(name, span)
            return
        source = self.expressions.data(d.source)  # type: ignore[arg-type]
        if isinstance(d.target, tree.Expr):
            # The data is in the target; the future only stands for its completion.
            target = self.transfer(d, span)
            if self.expressions.varies(d.target):
                target = self._pinned(target)
            if moving:
                self._refer(name, target, known, span)
            elif known is None:
                self.scope.declare(name, Future(target), span)
            else:
                self.scope.rebind(name, Future(target))
            return
        padding = self._padding(d, source, span)
        shape = self._arrives(d, source, padding, span)
        scope = str(d.target)
        if moving:
            view = self._fill(name, d, source, shape, known, span)
            self._move(d, source, view, padding, span)
            return
        if known is not None:
            raise ChoreoError(f"`{name}` is already declared", span)
        buffer = self.local(name)
        if in_place:
            self.emit(f"const choreo::{source.element}* __restrict {buffer} = {source.address};")
            view = Data(source.element, shape, source.strides, buffer, dim(0), name, "local", is_dense=False)
            self.scope.declare(name, Future(view), span)
            self.copies.append(f"{name} = {expr(d)}  // read in place")
            return
        # Every thread makes the copy, so each may have its own.
        self.allocate(buffer, source.element, shape, "local" if self.in_team else scope)
        target = Data(source.element, shape, contiguous(shape), buffer, dim(0), name, scope)
        self._move(d, source, target, padding, span)
        self.scope.declare(name, Future(target), span)
        self.copies.append(f"{name} = {expr(d)}")

    def _placeholder(self, name: str, span: Span) -> None:
        one = self.local(name)
        self.emit(f"//future {one}")
        self.scope.declare(name, Future(None, one), span)

    def _settle(self, one: str, data: Data) -> None:
        """The type of a `dma.any` is known from the first thing that is put there."""
        mark = f"//future {one}"
        for place in range(len(self.lines) - 1, -1, -1):
            line = self.lines[place]
            if line.strip() == mark:
                self.lines[place] = line.replace(mark, f"choreo::future<choreo::{data.element}> {one};")
                return

    def _object(
        self, name: str, element: str, shape: tuple[Dim, ...], known: Future | None, span: Span
    ) -> Data:
        """The C++ object of a future that can be swapped; what it holds must always have one shape."""
        if known is None:
            one = self.local(name)
            self.emit(f"choreo::future<choreo::{element}> {one};")
        else:
            one = known.object
        view = Data(element, shape, contiguous(shape), f"{one}.data", dim(0), name, "local")
        if known is None:
            self.scope.declare(name, Future(view, one), span)
            return view
        if known.data is None:
            self._settle(one, view)
        elif known.data.element != element:
            raise ChoreoError(f"`{name}` holds {known.data.element}, not {element}", span)
        else:
            self._check_shapes(shape, known.data.shape, span)
        self.scope.rebind(name, Future(view, one))
        return view

    def _refer(self, name: str, target: Data, known: Future | None, span: Span) -> None:
        """A future that can be swapped, and whose data lies in a buffer of the program."""
        if not is_contiguous(target.shape, target.strides):
            raise ChoreoError(f"`{name}` is swapped or selected, so its target must be a whole buffer", span)
        self._object(name, target.element, target.shape, known, span)
        found = self.scope.find(name)
        assert isinstance(found, Future)
        self.emit(f"{found.object}.refer({target.address});")

    def _fill(
        self,
        name: str,
        d: tree.Dma,
        source: Data,
        shape: tuple[Dim, ...],
        known: Future | None,
        span: Span,
    ) -> Data:
        """A future that can be swapped owns its memory and is filled where it stands."""
        view = self._object(name, source.element, shape, known, span)
        self.emit(f"{view.pointer.removesuffix('.data')}.reserve({product(shape)});")
        self.copies.append(f"{name} = {expr(d)}")
        return view

    def turn(self, names: tuple[str, ...], span: Span) -> None:
        """`swap` and `rotate`: each future gets what the next one held, the last what the first held."""
        found: list[Future] = []
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            raise ChoreoError(f"`{twice}` cannot be exchanged with itself", span)
        for name in names:
            one = self.scope.find(name)
            if not isinstance(one, Future) or not one.object:
                raise ChoreoError(f"`{name}` is not a future that can be exchanged", span)
            found.append(one)
        known = next((f.data for f in found if f.data is not None), None)
        if known is None:
            raise ChoreoError("none of these futures holds data", span)
        for name, each in zip(names, found, strict=True):
            if each.data is None:
                self._settle(each.object, known)
                view = Data(known.element, known.shape, known.strides, f"{each.object}.data", dim(0), name)
                self.scope.rebind(name, Future(view, each.object))
                continue
            held, first = each.data, f"`{names[0]}`"
            ranks = len(held.shape), len(known.shape)
            if held.element != known.element:
                message = f"`{name}` holds {held.element}, {first} {known.element}"
                raise ChoreoError(f"{message}: they cannot be exchanged", span)
            if ranks[0] != ranks[1] or any(
                same(*d) is False for d in zip(held.shape, known.shape, strict=True)
            ):
                message = f"`{name}` holds {shown(held.shape)}, {first} {shown(known.shape)}"
                raise ChoreoError(f"{message}: they cannot be exchanged", span)
            self._check_shapes(known.shape, held.shape, span)
        self.emit(f"choreo::rotate({', '.join(f.object for f in found)});")

    def transfer(self, d: tree.Dma, span: Span) -> Data:
        """A DMA whose target is data, which is returned."""
        if d.source is None or not isinstance(d.target, tree.Expr):
            named = f"f = dma.{d.kind} … => {d.target}"
            message = f"nothing can read the result of this DMA, because it has no name; write `{named}`"
            raise ChoreoError(message, span)
        source, target = self.expressions.data(d.source), self.expressions.data(d.target)
        whole = target
        if source.element != target.element:
            raise ChoreoError(
                f"this DMA copies {source.element} to {target.element}: the element types differ", span
            )
        if d.kind == "copy" and len(source.shape) != len(target.shape):  # [1, 4, 8] is copied to [4, 8]
            source, target = _without_ones(source), _without_ones(target)
        padding = self._padding(d, source, span)
        self._check_shapes(self._arrives(d, source, padding, span), target.shape, span)
        if source.root == target.root:
            source = self._aside(source)
        self._move(d, source, target, padding, span)
        self.copies.append(expr(d))
        return whole

    def _aside(self, data: Data) -> Data:
        """A copy of data that lies in the buffer which is written, and may lie where it is written."""
        name = self.fresh("source")
        self.allocate(name, data.element, data.shape, "local")
        strides = contiguous(data.shape)
        lists = [", ".join(d.text for d in dims) for dims in (data.shape, data.strides, strides)]
        shown_lists = ", ".join(f"{{{each}}}" for each in lists)
        self.emit(f"choreo::copy<{len(data.shape)}>({data.address}, {name}, {shown_lists});")
        return replace(data, strides=strides, pointer=name, offset=dim(0), root=name)

    def _check_shapes(self, a: tuple[Dim, ...], b: tuple[Dim, ...], span: Span) -> None:
        if len(a) != len(b):
            raise ChoreoError(f"the source of this DMA has rank {len(a)}, its target rank {len(b)}", span)
        differ = f"this DMA copies {shown(a)} to {shown(b)}: the shapes differ"
        for x, y in zip(a, b, strict=True):
            equal = same(x, y)
            if equal is False:
                raise ChoreoError(differ, span)
            if equal is None:
                self.hold(f"{x.text} == {y.text}", differ, span)

    def _arrives(self, d: tree.Dma, source: Data, padding: Padding | None, span: Span) -> tuple[Dim, ...]:
        """The shape in which the data arrives."""
        if d.kind == "transp":
            order = self._order(d, source, span)
            return tuple(source.shape[i] for i in order)
        if padding is None:
            return source.shape
        return tuple(padding.extent(i, extent) for i, extent in enumerate(source.shape))

    def _order(self, d: tree.Dma, source: Data, span: Span) -> list[int]:
        order = [x.value for s in d.settings for x in self.expressions.dims_of(s)]
        if sorted(i for i in order if i is not None) != list(range(len(source.shape))):
            raise ChoreoError(f"transp needs an order of {len(source.shape)} dimensions", span)
        return [i for i in order if i is not None]

    def _padding(self, d: tree.Dma, source: Data, span: Span) -> Padding | None:
        if d.kind != "pad":
            return None
        if len(d.settings) != 4:
            raise ChoreoError("pad needs <low, high, between, value>", span)
        parts: list[tuple[Dim, ...]] = []
        for setting in d.settings[:3]:
            amounts = self.expressions.dims_of(setting)
            if len(amounts) != len(source.shape):
                message = f"pad needs {len(source.shape)} amounts of each kind, as {{…}}, not {len(amounts)}"
                raise ChoreoError(message, setting.span)
            for each in amounts:
                if each.value is not None and each.value < 0:
                    raise ChoreoError(f"an amount of padding cannot be below 0, as {each} is", setting.span)
                if each.value is None:
                    self.hold(f"{each.atom} >= 0", "an amount of padding cannot be below 0", setting.span)
            parts.append(amounts)
        low, high, between = parts
        return Padding(low, high, between, self.expressions.text(d.settings[3]))

    def _fill_tile(self, target: Data, value: str) -> None:
        if is_contiguous(target.shape, target.strides):
            self.emit(f"choreo::fill({target.address}, {product(target.shape)}, {value});")
            return
        lists = [", ".join(d.text for d in dims) for dims in (target.shape, target.strides)]
        rank = len(target.shape)
        self.emit(f"choreo::fill_tile<{rank}>({target.address}, {{{lists[0]}}}, {{{lists[1]}}}, {value});")

    def _move(self, d: tree.Dma, source: Data, target: Data, padding: Padding | None, span: Span) -> None:
        if not self.as_threads:
            self._copy(d, source, target, padding, span)
            return
        one = self.fresh("copy")
        is_apart = d.is_async and d.event is None
        if is_apart:
            self.emit(f"CHOREO_BEGIN_COPY({one});")
        if d.after:
            self.arrived(tree.Name(d.after, span=span))
        self._mark(span.line)
        self._copy(d, source, target, padding, span)
        if is_apart:
            self._mark(span.line)
            self.emit(f"CHOREO_END_COPY({one}, {target.address});")

    def arrived(self, waited: tree.Expr) -> None:
        """What was copied is there from here on, for a thread sanitizer."""
        if not self.as_threads:
            return
        value = self.expressions.value(waited)
        data = value.data if isinstance(value, Future) else value
        if isinstance(data, Data):
            self.emit(f"CHOREO_ARRIVED(const_cast<choreo::{data.element}*>({data.address}));")

    def _copy(self, d: tree.Dma, source: Data, target: Data, padding: Padding | None, span: Span) -> None:
        rank = len(source.shape)
        extents = [x.text for x in source.shape]
        from_strides, to_strides = list(source.strides), list(target.strides)
        offset = target.offset
        if d.kind == "transp":
            order = self._order(d, source, span)
            to_strides = [target.strides[order.index(i)] for i in range(rank)]
        elif padding is not None:
            self._fill_tile(target, f"choreo::{target.element}({padding.value})")
            for low, stride in zip(padding.low, target.strides, strict=True):
                offset = add(offset, mul(low, stride))
            to_strides = [mul(add(ONE, m), s) for m, s in zip(padding.between, to_strides, strict=True)]
        start = target.pointer if offset.value == 0 else f"{target.pointer} + {offset.atom}"
        lists = [", ".join(map(str, x)) for x in (extents, from_strides, to_strides)]
        self.emit(f"choreo::copy<{rank}>({source.address}, {start}, {', '.join(f'{{{x}}}' for x in lists)});")


def _without_ones(data: Data) -> Data:
    """The same elements, without the dimensions that have only one place."""
    kept = [i for i, extent in enumerate(data.shape) if extent.value != 1]
    shape, strides = (tuple(x[i] for i in kept) for x in (data.shape, data.strides))
    return replace(data, shape=shape, strides=strides)
