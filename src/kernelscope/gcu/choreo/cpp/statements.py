"""Statements to C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.printer import expr
from kernelscope.gcu.choreo.syntax.walk import handed, last, names, nodes

from .data import HALVES
from .elision import becomes, moving_futures, reads_in_place
from .expressions import Expressions
from .fragments import Fragments
from .shapes import Dim, contiguous, dim, product, same, shown
from .values import (
    Bounded,
    Buffers,
    Data,
    Fragment,
    Scalar,
    Scope,
    Several,
    cpp_type,
    line_mark,
    unquoted,
)

STACK_BYTES = 32 << 10  # a larger local buffer comes from the thread's scratch memory
_BYTES = {"8": 1, "6": 2, "2": 4, "4": 8}


class Statements(Fragments):
    """Writes the body of one function."""

    result: Callable[[tree.Expr], None] | None = None  # what `return` does with its value

    def __init__(
        self, function: tree.Function, scope: Scope, elide: bool, checked: bool, file: str | None = None
    ) -> None:
        self.lines: list[str] = []
        self.copies: list[str] = []
        self.allocations: list[tuple[str, str, str, str]] = []
        self.parallel: list[str] = []
        self.chunking: list[str] = []
        self._function = function
        self._elide = elide
        self._depth = 1
        self._file = file
        self._moving = moving_futures(function)
        self._forwarded: set[int] = set()  # DMAs that have nothing left to do
        self._serial = 0
        self._teams: list[str] = []
        self._thread_names: set[str] = set()
        self._part_names: dict[str, tuple[str, ...]] = {}
        self._tied: dict[str, set[str]] = {}
        found = [n for n in nodes(function.body) if isinstance(n, tree.DeclareEvent)]
        self._event_names = frozenset(n.name for n in found)
        self._shared_at: list[int | None] = []  # where the block's shared buffers are declared
        self.expressions = Expressions(scope, self.check, self.quoted, checked)
        self.expressions.keep = self._kept

    @property
    def scope(self) -> Scope:
        return self.expressions.scope

    def emit(self, line: str) -> None:
        self.lines.append("  " * self._depth + line)

    def _kept(self, number: str) -> Dim:
        name = self.fresh("size")
        self.emit(f"const int64_t {name} = {number};")
        return dim(name)

    def check(self, condition: str, message: str, span: Span) -> None:
        self.emit(f"choreo::check({condition}, {self.quoted(message, span)});")

    def quoted(self, message: str, span: Span) -> str:
        return f'"{self._function.name}:{span.line}:{span.column}: {message}"'

    def fresh(self, stem: str) -> str:
        self._serial += 1
        return f"{stem}_{self._serial}"

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside a condition: what looks out of bounds is checked when it is used."""
        outer, self.expressions.guarded = self.expressions.guarded, True
        yield
        self.expressions.guarded = outer

    @contextmanager
    def nested(self, head: str) -> Iterator[None]:
        self.emit(head + " {" if head else "{")
        self._depth += 1
        outer, self.expressions.scope = self.scope, self.scope.inner()
        yield
        self.expressions.scope = outer
        self._depth -= 1
        self.emit("}")

    # -- blocks ----------------------------------------------------------------------------------------

    def block(self, body: tree.Block, skip: tree.DeclareBuffer | None = None) -> None:
        for place, each in enumerate(body):
            if each is not skip:
                self.statement(each, body[place + 1 :])
            elif skip is not None and skip.init is not None:  # the caller provides it, not its content
                view = self.scope.find(skip.name)
                assert isinstance(view, Data)
                self._initialise(view.pointer, view.element, view.shape, skip.init)

    def _mark(self, line: int) -> None:
        if self._file is not None and line:
            self.lines.append(line_mark(line, self._file))

    def statement(self, s: tree.Stmt, rest: tree.Block) -> None:
        e = self.expressions
        self._mark(s.span.line)
        match s:
            case tree.Remark():
                pass
            case tree.Return():
                self._return(s)
            case tree.DeclareBuffer():
                self._buffer(s, rest)
            case tree.DeclareScalar():
                self._declare_scalar(s)
            case tree.DeclareEvent():
                self.declare_event(s)
            case tree.DeclareSpan():
                self.scope.declare(s.name, Several(e.dims_of(s.dims)), s.span)
            case tree.Assign():
                self._assign(s, rest)
            case tree.Store():
                self._store(s)
            case tree.Do():
                if id(s) not in self._forwarded:
                    self.transfer(s.dma, s.span)
            case tree.Parallel():
                self._parallel(s)
            case tree.With():
                self._with(s)
            case tree.Foreach():
                self._foreach(s)
            case tree.If():
                self._if(s)
            case tree.While():
                with self.nested(f"while ({e.text(s.condition)})"), self.guarded(), self.looping(1):
                    self.block(s.body)
            case tree.InThreads():
                self.in_threads(s)
            case _:
                self._simple(s)

    def _simple(self, s: tree.Stmt) -> None:
        e = self.expressions
        match s:
            case tree.Wait():
                self.wait_for_events(s)  # a copy is complete when it returns; its waits were checked
            case tree.Trigger():
                self.trigger(s)
            case tree.Sync():
                self.synchronise(s)
            case tree.Swap():
                self.turn((s.first, s.second), s.span)
            case tree.Rotate():
                self.turn(s.names, s.span)
            case tree.Break() | tree.Continue():
                self.leave(s)
            case tree.Matrix():
                self.matrix(s)
            case tree.Effect():
                self.emit(f"{e.text(s.value)};")
            case tree.Call():
                self.emit(f"{s.name}{e.settings(s)}({', '.join(e.argument(a) for a in s.args)});")
            case tree.Print():
                args = ", ".join(self._printed(a) for a in s.args)
                self.emit(f"choreo::{'println' if s.newline else 'print'}({args});")
            case tree.Assert():
                message = s.message[1:-1] or "assertion failed"
                self.check(e.text(s.condition), message, s.span)
            case tree.Cpp():
                self.emit(unquoted(s.text))
            case _:
                raise ChoreoError(f"{type(s).__name__} is not allowed here", s.span)

    def _printed(self, a: tree.Expr) -> str:
        value = self.expressions.value(a)
        if not isinstance(value, Several):
            return self.expressions.text(a)
        parts = [self.expressions.number_text(item) for item in value.items]
        return ', ", ", '.join(parts) or '""'

    def _return(self, s: tree.Return) -> None:
        if self.scope.depth:
            raise ChoreoError("return inside parallel: the other threads would continue", s.span)
        if self.result is not None and s.value is not None:
            self.result(s.value)
        if s is not last(self._function.body):
            self.emit("return;")

    # -- buffers and scalars ---------------------------------------------------------------------------

    def _declare_scalar(self, s: tree.DeclareScalar) -> None:
        init = self.expressions.scalar(s.init) if s.init is not None else Scalar("0", "int")
        if init.type in ("text", "address"):
            raise ChoreoError(f"`{s.name}` needs a number", s.span)
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

    def _buffer(self, s: tree.DeclareBuffer, rest: tree.Block) -> None:
        shape = self.expressions.shape(s.dims, s.span)
        name = self.local(s.name)
        goal = becomes(s, rest) if self._elide else None
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
        counts = tuple(self.expressions.dim(c) for c in s.counts)
        self.allocate(name, s.element, (*counts, *shape), s.scope or "global")
        view = Data(s.element, shape, contiguous(shape), name, dim(0), s.name, s.scope or "global")
        self.scope.declare(s.name, Buffers(view, counts) if counts else view, s.span)
        init = s.init
        if init is None and any(s.name in handed(n) for n in nodes(rest) if isinstance(n, tree.Call)):
            init = tree.Int(0)  # kernels add to what they are given
        if init is not None:
            self._initialise(name, s.element, (*counts, *shape), init)

    def _initialise(self, name: str, element: str, shape: tuple[Dim, ...], init: tree.Expr) -> None:
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

    def _assign(self, s: tree.Assign, rest: tree.Block) -> None:
        if isinstance(s.value, tree.Dma):
            if s.op != "=":
                raise ChoreoError("a DMA can only be assigned with =", s.span)
            in_place = self._elide and s.name not in self._moving
            in_place = in_place and reads_in_place(s, rest, self._function)
            self.future(s.name, s.value, s.span, in_place=in_place, moving=s.name in self._moving)
            return
        known = self.scope.find(s.name)
        if known is None and s.op == "=":
            self._name(s)
            return
        if isinstance(known, Fragment):
            self.change_matrix(known, s)
            return
        if not isinstance(known, Scalar) or not known.is_mutable:
            what = "not declared" if known is None else "not a mutable scalar"
            advice = "; declare it `mutable`" if isinstance(known, Scalar) else ""
            raise ChoreoError(f"`{s.name}` is {what}, so it cannot be assigned to{advice}", s.span)
        number = self.expressions.scalar(s.value)
        value = number.text
        if s.op in ("/=", "%="):
            value = self.expressions.combined(s.op[0], known, number, s.span)
        if s.op in ("=", "/=", "%="):
            self.emit(f"{known.text} = static_cast<{known.cpp}>({value});")
        else:
            self.emit(f"{known.text} {s.op} {value};")

    def _name(self, s: tree.Assign) -> None:
        """`v = x.at(i) + 1;`: a number is computed here, anything else gets another name."""
        value = self.expressions.value(s.value)
        if names(s.value) & self._thread_names:
            self._thread_names.add(s.name)
        if isinstance(value, Scalar) and value.type not in ("text", "address"):
            name = self.local(s.name)
            kind = cpp_type(value.type) if value.type else "auto"
            self.emit(f"const {kind} {name} = {value.text};")
            value = replace(value, text=name, is_mutable=False)
        self.scope.declare(s.name, value, s.span)

    def _store(self, s: tree.Store) -> None:
        data = self.expressions.data(s.target.of)
        place = self.expressions.element(s.target)
        number = self.expressions.scalar(s.value)
        value = number.text
        if s.op != "=":
            value = self.expressions.combined(s.op[:-1], place, number, s.span)
        if data.element in HALVES:
            self.emit(f"choreo::put({place.text}, {value});")
        else:
            self.emit(f"{place.text} = static_cast<{cpp_type(data.element)}>({value});")

    def _if(self, s: tree.If) -> None:
        with self.nested(f"if ({self.expressions.text(s.condition)})"), self.guarded():
            self._learn(s.condition)
            self.block(s.then)
        if s.other:
            with self.nested("else"), self.guarded():
                self.block(s.other)

    def _learn(self, condition: tree.Expr) -> None:
        """Inside `if (i < 3)`, i is at most 2."""
        match condition:
            case tree.Binary(op="<", left=tree.Name(id=name), right=limit):
                known = self.scope.find(name)
                most = self.expressions.scalar(limit).high
                if isinstance(known, Bounded) and most is not None:
                    high = most - 1 if known.high is None else min(known.high, most - 1)
                    self.scope.names[name] = replace(known, high=high)

    def _check_shapes(self, a: tuple[Dim, ...], b: tuple[Dim, ...], span: Span) -> None:
        if len(a) != len(b):
            raise ChoreoError(f"the source of this DMA has rank {len(a)}, its target rank {len(b)}", span)
        differ = f"this DMA copies {shown(a)} to {shown(b)}: the shapes differ"
        for x, y in zip(a, b, strict=True):
            equal = same(x, y)
            if equal is False:
                raise ChoreoError(differ, span)
            if equal is None:
                self.check(f"{x.text} == {y.text}", differ, span)
