"""DMA operations and futures to C++."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.printer import expr

from .shapes import Dim, add, contiguous, dim, is_contiguous, product, same, shown
from .values import Data, Future, Scope, cpp_name

if TYPE_CHECKING:
    from .expressions import Expressions


class Transfers:
    """The part of a function's body that moves data."""

    lines: list[str]
    copies: list[str]
    expressions: Expressions
    _depth: int

    @property
    def in_team(self) -> bool: ...  # type: ignore[empty-body]

    # What the other part provides.
    @property
    def scope(self) -> Scope: ...  # type: ignore[empty-body]
    def emit(self, line: str) -> None: ...
    def fresh(self, stem: str) -> str: ...  # type: ignore[empty-body]
    def allocate(self, name: str, element: str, shape: tuple[Dim, ...], scope: str) -> None: ...
    def _check_shapes(self, a: tuple[Dim, ...], b: tuple[Dim, ...], span: Span) -> None: ...

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
            self.transfer(d, span)
            target = self.expressions.data(d.target)
            if moving:
                self._refer(name, target, known, span)
            elif known is None:
                self.scope.declare(name, Future(target), span)
            else:
                self.scope.rebind(name, Future(target))
            return
        shape = self._arrives(d, source, span)
        scope = str(d.target)
        if moving:
            self._fill(name, d, source, shape, known, span)
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
        self._move(d, source, target, span)
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
    ) -> None:
        """A future that can be swapped owns its memory and is filled where it stands."""
        view = self._object(name, source.element, shape, known, span)
        self.emit(f"{view.pointer.removesuffix('.data')}.reserve({product(shape)});")
        self._move(d, source, view, span)
        self.copies.append(f"{name} = {expr(d)}")

    def turn(self, names: tuple[str, ...], span: Span) -> None:
        """`swap` and `rotate`: each future gets what the next one held, the last what the first held."""
        found: list[Future] = []
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

    def transfer(self, d: tree.Dma, span: Span) -> None:
        """A DMA whose target is data."""
        if d.source is None or not isinstance(d.target, tree.Expr):
            raise ChoreoError("a DMA into a scope must be named: f = dma.copy … => local", span)
        source, target = self.expressions.data(d.source), self.expressions.data(d.target)
        if source.element != target.element:
            raise ChoreoError(
                f"this DMA copies {source.element} to {target.element}: the element types differ", span
            )
        if d.kind == "copy" and len(source.shape) != len(target.shape):  # [1, 4, 8] is copied to [4, 8]
            source, target = _without_ones(source), _without_ones(target)
        self._check_shapes(self._arrives(d, source, span), target.shape, span)
        self._move(d, source, target, span)
        self.copies.append(expr(d))

    def _arrives(self, d: tree.Dma, source: Data, span: Span) -> tuple[Dim, ...]:
        """The shape in which the data arrives."""
        if d.kind == "transp":
            order = self._order(d, source, span)
            return tuple(source.shape[i] for i in order)
        if d.kind == "pad":
            low, high, middle, _ = self._padding(d, source, span)
            shape = []
            for i, extent in enumerate(source.shape):
                between = Dim(None, f"({extent.atom} - 1) * {middle[i]}") if middle[i] else dim(0)
                if middle[i] and extent.value is not None:
                    between = dim((extent.value - 1) * middle[i])
                shape.append(add(add(add(dim(low[i]), extent), between), dim(high[i])))
            return tuple(shape)
        return source.shape

    def _order(self, d: tree.Dma, source: Data, span: Span) -> list[int]:
        order = [x.value for s in d.settings for x in self.expressions.dims_of(s)]
        if sorted(i for i in order if i is not None) != list(range(len(source.shape))):
            raise ChoreoError(f"transp needs an order of {len(source.shape)} dimensions", span)
        return [i for i in order if i is not None]

    def _padding(self, d: tree.Dma, source: Data, span: Span) -> tuple[list[int], list[int], list[int], str]:
        if len(d.settings) != 4:
            raise ChoreoError("pad needs <low, high, between, value>", span)
        parts = []
        for setting in d.settings[:3]:
            dims = [x.value for x in self.expressions.dims_of(setting)]
            amounts = [x for x in dims if x is not None and x >= 0]
            if len(amounts) != len(source.shape):
                raise ChoreoError(f"pad needs {len(source.shape)} amounts of each kind, as {{…}}", span)
            parts.append(amounts)
        return parts[0], parts[1], parts[2], self.expressions.text(d.settings[3])

    def _move(self, d: tree.Dma, source: Data, target: Data, span: Span) -> None:
        rank = len(source.shape)
        extents = [x.text for x in source.shape]
        from_strides, to_strides = list(source.strides), list(target.strides)
        offset = target.offset
        if d.kind == "transp":
            order = self._order(d, source, span)
            to_strides = [target.strides[order.index(i)] for i in range(rank)]
        elif d.kind == "pad":
            low, _, middle, value = self._padding(d, source, span)
            count = product(target.shape)
            self.emit(f"choreo::fill({target.address}, {count}, choreo::{target.element}({value}));")
            for i in range(rank):
                offset = (
                    add(offset, dim(low[i]))
                    if target.strides[i].value == 1
                    else Dim(None, f"{offset.text} + {low[i]} * {target.strides[i].atom}")
                )
            to_strides = [Dim(None, f"{1 + middle[i]} * {s.atom}") for i, s in enumerate(to_strides)]
        start = target.pointer if offset.value == 0 else f"{target.pointer} + {offset.atom}"
        lists = [", ".join(map(str, x)) for x in (extents, from_strides, to_strides)]
        self.emit(f"choreo::copy<{rank}>({source.address}, {start}, {', '.join(f'{{{x}}}' for x in lists)});")


def _without_ones(data: Data) -> Data:
    """The same elements, without the dimensions that have only one place."""
    kept = [i for i, extent in enumerate(data.shape) if extent.value != 1]
    shape, strides = (tuple(x[i] for i in kept) for x in (data.shape, data.strides))
    return replace(data, shape=shape, strides=strides)
