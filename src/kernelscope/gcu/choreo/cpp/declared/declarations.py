"""Declarations of buffers, scalars and names to C++."""

from __future__ import annotations

from dataclasses import replace

from kernelscope.gcu.choreo.cpp.elision import becomes
from kernelscope.gcu.choreo.cpp.fragments import Fragments
from kernelscope.gcu.choreo.cpp.shapes import Dim, contiguous, dim, product, shown
from kernelscope.gcu.choreo.cpp.sizes.arithmetic import refuse_too_large
from kernelscope.gcu.choreo.cpp.values import Buffers, Data, Future, Scalar, Several, cpp_type
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.printer import expr
from kernelscope.gcu.choreo.syntax.walk import handed, names, nodes

STACK_BYTES = 32 << 10  # a larger local buffer comes from the thread's scratch memory
_BYTES = {"8": 1, "6": 2, "2": 4, "4": 8}


class Declarations(Fragments):
    """The part of a function's body that makes names known."""

    allocations: list[tuple[str, str, str, str]]
    _elide: bool
    _moving: set[str]  # futures that change what they hold
    _forwarded: set[int]  # DMAs that have nothing left to do

    def declare_scalar(self, s: tree.DeclareScalar) -> None:
        init = self.expressions.scalar(s.init) if s.init is not None else Scalar("0", "int")
        if init.type in ("text", "address"):
            raise ChoreoError(f"`{s.name}` needs a number", s.span)
        refuse_too_large(init, s.type or "", s.span)
        kind = s.type or init.type
        name = self.local(s.name)
        if names(s.init) & self._thread_names:
            self._thread_names.add(s.name)
        const = "" if s.is_mutable else "const "
        if kind:
            self.emit(f"{const}{cpp_type(kind)} {name} = static_cast<{cpp_type(kind)}>({init.text});")
        else:
            self.emit(f"{const}auto {name} = {init.text};")
        low, high = (None, None) if s.is_mutable else (init.low, init.high)
        self.scope.declare(s.name, Scalar(name, kind, low, high, is_mutable=s.is_mutable), s.span)

    def declare_buffer(self, s: tree.DeclareBuffer, rest: tree.Block) -> None:
        shape = self.expressions.shape(s.dims, s.span)
        name = self.local(s.name)
        goal = becomes(s, rest, self.aliases) if self._elide else None
        if goal is not None and isinstance(goal.dma.target, tree.Expr):
            target = self.expressions.data(goal.dma.target)
            if target.element == s.element and len(target.shape) == len(shape):
                self._check_shapes(shape, target.shape, goal.span)
                self._forwarded.add(id(goal))
                self.emit(f"{cpp_type(s.element)}* __restrict {name} = {target.address};")
                view = replace(target, pointer=name, offset=dim(0), root=s.name, scope="local")
                self.scope.declare(s.name, view, s.span)
                self.copies.append(f"{expr(goal.dma)}  // written in place")
                return
        counts = tuple(self.expressions.fixed(self.expressions.dim(c)) for c in s.counts)
        self._not_below_0((*counts, *shape), s.span)
        self.allocate(name, s.element, (*counts, *shape), s.scope or "global")
        view = Data(s.element, shape, contiguous(shape), name, dim(0), s.name, s.scope or "global")
        self.scope.declare(s.name, Buffers(view, counts) if counts else view, s.span)
        init = s.init
        if init is None and any(s.name in handed(n) for n in nodes(rest) if isinstance(n, tree.Call)):
            init = tree.Int(0)  # kernels add to what they are given
        if init is not None:
            self.initialise(name, s.element, (*counts, *shape), init)

    def _not_below_0(self, shape: tuple[Dim, ...], span: Span) -> None:
        if not self.expressions.checked:
            return
        for each in shape:
            if each.value is None and not isinstance(self.scope.find(each.text), Dim):
                self.hold(f"{each.atom} >= 0", "a dimension cannot be below 0", span)

    def initialise(self, name: str, element: str, shape: tuple[Dim, ...], init: tree.Expr) -> None:
        refuse_too_large(self.expressions.assignable(init), element, init.span)
        value = f"static_cast<{cpp_type(element)}>({self.expressions.text(init)})"
        self.emit(f"choreo::fill({name}, {product(shape)}, {value});")

    def allocate(self, name: str, element: str, shape: tuple[Dim, ...], scope: str) -> None:
        count = product(shape)
        kind = cpp_type(element)
        self.allocations.append((name, scope, element, shown(shape)))
        place = self._shared_at[-1] if self._shared_at else None
        if scope == "shared" and place is not None:
            store = self.fresh(name)
            lines = [f"choreo::scratch<{kind}> {store}({count});", f"{kind}* const {name} = {store}.data();"]
            self.before_threads(place, lines)
        elif count.value is not None and count.value * _BYTES[element[-1]] <= STACK_BYTES:
            self.emit(f"alignas(64) {kind} {name}[{max(1, count.value)}];")
        else:
            store = self.fresh(name)
            self.emit(f"choreo::scratch<{kind}> {store}({count});")
            self.emit(f"{kind}* __restrict const {name} = {store}.data();")

    def name(self, s: tree.Assign) -> None:
        """`v = x.at(i) + 1;`: a number is computed here, anything else gets another name."""
        value = self.expressions.value(s.value)
        if names(s.value) & self._thread_names:
            self._thread_names.add(s.name)
        if isinstance(value, Scalar) and value.type not in ("text", "address"):
            name = self.local(s.name)
            kind = cpp_type(value.type) if value.type else "auto"
            self.emit(f"const {kind} {name} = {value.text};")
            value = replace(value, text=name, is_mutable=False)
        elif isinstance(value, Data) and self._moves(value, s.value):
            value = self._pinned(value)
        elif isinstance(value, Future) and value.data is not None and s.name not in self._moving:
            held = value.data
            value = Future(self._pinned(held) if value.object or self._moves(held, s.value) else held)
        elif isinstance(value, Several) and self.expressions.varies(s.value):
            value = Several(self.expressions.dims_of(s.value))
        self.scope.declare(s.name, value, s.span)

    def _moves(self, data: Data, e: tree.Expr) -> bool:
        """Whether it may lie elsewhere later: a variable says where, or futures are exchanged."""
        is_chosen = isinstance(e, tree.Builtin)
        return is_chosen or data.pointer.endswith(".data") or self.expressions.varies(e)

    def _pinned(self, data: Data) -> Data:
        """Data where it is now, whatever becomes of the variables that say where."""
        name = self.fresh("place")
        const = "const " if data.is_const else ""
        self.emit(f"{const}{cpp_type(data.element)}* const {name} = {data.address};")
        return replace(data, pointer=name, offset=dim(0))
