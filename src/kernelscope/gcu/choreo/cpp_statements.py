"""Statements to C++."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from . import tree
from .cpp_expressions import Expressions
from .cpp_transfers import Transfers
from .elision import becomes, moving_futures, reads_in_place
from .errors import ChoreoError, Span
from .printer import expr
from .shapes import Dim, contiguous, dim, product, same, shown
from .simd import reduction, vectorises
from .values import Bounded, Data, Future, Scalar, Scope, Several, bounded, cpp_name
from .walk import nodes

STACK_BYTES = 32 << 10  # a larger local buffer comes from the thread's scratch memory
_BYTES = {"8": 1, "6": 2, "2": 4, "4": 8}


def cpp_type(name: str) -> str:
    return name if name in ("int", "bool", "float", "double") else f"choreo::{name}"


class Statements(Transfers):
    """Writes the body of one function."""

    def __init__(self, function: tree.Function, scope: Scope, elide: bool) -> None:
        self.lines: list[str] = []
        self.copies: list[str] = []
        self.allocations: list[tuple[str, str, str, str]] = []
        self.parallel: list[str] = []
        self.chunking: list[str] = []
        self._function = function
        self._elide = elide
        self._depth = 1
        self._moving = moving_futures(function)
        self._forwarded: set[int] = set()  # DMAs that have nothing left to do
        self._serial = 0
        self._shared_at: list[int] = []  # where the block's shared buffers are declared
        self.expressions = Expressions(scope, self.check)

    @property
    def scope(self) -> Scope:
        return self.expressions.scope

    def emit(self, line: str) -> None:
        self.lines.append("  " * self._depth + line)

    def check(self, condition: str, message: str, span: Span) -> None:
        self.emit(
            f'choreo::check({condition}, "{self._function.name}:{span.line}:{span.column}: {message}");'
        )

    def fresh(self, stem: str) -> str:
        self._serial += 1
        return f"{stem}_{self._serial}"

    @contextmanager
    def nested(self, head: str) -> Iterator[None]:
        self.emit(head + " {")
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

    def statement(self, s: tree.Stmt, rest: tree.Block) -> None:
        e = self.expressions
        match s:
            case tree.Remark() | tree.Return():
                pass
            case tree.DeclareBuffer():
                self._buffer(s, rest)
            case tree.DeclareScalar():
                const = "" if s.is_mutable else "const "
                init = e.text(s.init) if s.init is not None else "0"
                kind = cpp_type(s.type)
                self.emit(f"{const}{kind} {cpp_name(s.name)} = static_cast<{kind}>({init});")
                self.scope.declare(s.name, Scalar(cpp_name(s.name), s.type, is_mutable=s.is_mutable), s.span)
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
                with self.nested(f"while ({e.text(s.condition)})"):
                    self.block(s.body)
            case _:
                self._simple(s)

    def _simple(self, s: tree.Stmt) -> None:
        e = self.expressions
        match s:
            case tree.Wait():
                pass  # a copy is complete when it returns; that each is waited for once was checked
            case tree.Swap():
                self._swap(s)
            case tree.Call():
                given = f"<{', '.join(e.text(x) for x in s.settings)}>" if s.settings else ""
                self.emit(f"{s.name}{given}({', '.join(self._call_argument(a) for a in s.args)});")
            case tree.Print():
                args = ", ".join(e.text(a) for a in s.args)
                self.emit(f"choreo::{'println' if s.newline else 'print'}({args});")
            case tree.Assert():
                message = s.message[1:-1] or "assertion failed"
                self.check(e.text(s.condition), message, s.span)
            case tree.Cpp():
                self.emit(s.text[1:-1].encode().decode("unicode_escape"))
            case _:
                raise ChoreoError(f"{type(s).__name__} cannot stand here", s.span)

    def _call_argument(self, a: tree.Expr) -> str:
        value = self.expressions.value(a)
        if isinstance(value, Future):
            value = self.expressions.data(tree.Member(a, "data", span=a.span))
        return value.address if isinstance(value, Data) else self.expressions.text(a)

    # -- buffers and scalars ---------------------------------------------------------------------------

    def _buffer(self, s: tree.DeclareBuffer, rest: tree.Block) -> None:
        shape = self.expressions.shape(s.dims)
        name = cpp_name(s.name)
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
        self.allocate(name, s.element, shape, s.scope or "global")
        view = Data(s.element, shape, contiguous(shape), name, dim(0), s.name, s.scope or "global")
        self.scope.declare(s.name, view, s.span)
        if s.init is not None:
            count, value = product(shape), self.expressions.text(s.init)
            self.emit(f"choreo::fill({name}, {count}, static_cast<{cpp_type(s.element)}>({value}));")

    def allocate(self, name: str, element: str, shape: tuple[Dim, ...], scope: str) -> None:
        count = product(shape)
        kind = cpp_type(element)
        self.allocations.append((name, scope, element, shown(shape)))
        if scope == "shared" and self._shared_at:
            place = self._shared_at[-1]
            store = self.fresh(name)
            lines = [f"choreo::scratch<{kind}> {store}({count});", f"{kind}* const {name} = {store}.data();"]
            self.lines[place:place] = ["  " * (self._depth - 1) + line for line in lines]
            self._shared_at = [at + 2 for at in self._shared_at]
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
            self.scope.declare(s.name, self.expressions.value(s.value), s.span)
            return
        if not isinstance(known, Scalar) or not known.is_mutable:
            what = "not declared" if known is None else "not a mutable scalar"
            raise ChoreoError(f"`{s.name}` is {what}, so it cannot be assigned to", s.span)
        value = self.expressions.text(s.value)
        if s.op == "=":
            self.emit(f"{known.text} = static_cast<{cpp_type(known.type)}>({value});")
        else:
            self.emit(f"{known.text} {s.op} {value};")

    def _store(self, s: tree.Store) -> None:
        data = self.expressions.data(s.target.of)
        place = self.expressions.element(s.target)
        value = self.expressions.text(s.value)
        if s.op != "=":
            value = f"{place.text} {s.op[0]} {value}"
        self.emit(f"{place.text} = static_cast<{cpp_type(data.element)}>({value});")

    # -- loops -----------------------------------------------------------------------------------------

    def _parallel(self, s: tree.Parallel) -> None:
        if self.scope.depth:
            raise ChoreoError("parallel inside parallel; write the two levels as `p by A, q by B`", s.span)
        counted = [self._level(level) for level in s.levels]
        shares = any(
            getattr(n, "scope", "") == "shared" or getattr(n, "target", "") == "shared" for n in nodes(s.body)
        )
        bounds = " × ".join(shown(dims) for _, dims in counted)
        self.parallel.append(", ".join(f"{'/'.join(n) or '_'} by {shown(d)[1:-1]}" for n, d in counted))
        # What threads of one block share is safe only if they run one after another.
        runs_at_once = len(counted) == 2 or not shares
        self._loops(counted, s, runs_at_once, bounds)

    def _loops(
        self, counted: list[tuple[list[str], tuple[Dim, ...]]], s: tree.Parallel, at_once: bool, _: str
    ) -> None:
        outer = self.scope
        self.expressions.scope = outer.inner(1)
        closing = 0
        for level, (names, dims) in enumerate(counted):
            if level == len(counted) - 1:
                self._shared_at.append(len(self.lines))
            for place, extent in enumerate(dims):
                name = cpp_name(names[place]) if place < len(names) else self.fresh("p")
                if level == 0 and place == 0 and at_once and extent.value != 1:
                    self.emit("#pragma omp parallel for if (wide)")
                self.emit(f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{")
                self._depth += 1
                closing += 1
                if place < len(names):
                    self.scope.declare(names[place], bounded(dim(name), extent), s.span)
        self.expressions.scope = self.scope.inner()
        self.block(s.body)
        self._shared_at.pop()
        for _each in range(closing):
            self._depth -= 1
            self.emit("}")
        self.expressions.scope = outer

    def _level(self, level: tree.Level) -> tuple[list[str], tuple[Dim, ...]]:
        dims = self.expressions.shape(level.bound)
        if level.names and len(level.names) not in (1, len(dims)):
            raise ChoreoError(f"{len(level.names)} names for {len(dims)} bounds", level.bound[0].span)
        for extent in dims:
            if extent.value is not None and extent.value < 1:
                raise ChoreoError("parallel needs at least one", level.bound[0].span)
        return list(level.names), dims

    def _bind(self, bind: tree.Bind) -> list[tuple[str, Dim]]:
        dims = self.expressions.dims_of(bind.domain)
        self.chunking.append(f"{', '.join(bind.names)} in {shown(dims)}")
        if len(bind.names) == len(dims):
            return list(zip(bind.names, dims, strict=True))
        if len(bind.names) == 1 and not bind.braced:
            return [(f"{bind.names[0]}__{i}", extent) for i, extent in enumerate(dims)]
        raise ChoreoError(f"{len(bind.names)} names for a span of rank {len(dims)}", bind.span)

    def _name_whole(self, bind: tree.Bind, parts: list[tuple[str, Dim]]) -> None:
        """A single name for several dimensions, or the name before `=`."""
        whole = bind.whole or (bind.names[0] if len(bind.names) == 1 and len(parts) != 1 else "")
        if whole:
            items = tuple(self.scope.find(name) for name, _ in parts)
            self.scope.declare(whole, Several(items), bind.span)

    def _with(self, s: tree.With) -> None:
        with self.nested(""):
            for bind in s.binds:
                parts = self._bind(bind)
                for name, extent in parts:
                    self.scope.declare(name, Bounded(dim(0), extent, 0, 0), bind.span)
                self._name_whole(bind, parts)
            self.block(s.body)

    def _foreach(self, s: tree.Foreach) -> None:
        outer = self.scope
        self.expressions.scope = outer.inner()
        headers: list[tuple[str, str]] = []
        for each in s.ranges:
            if isinstance(each, tree.Bind):
                parts = self._bind(each)
                for name, extent in parts:
                    self.scope.declare(name, bounded(dim(cpp_name(name)), extent), each.span)
                    headers.append((name, _header(cpp_name(name), "0", extent.text, "1")))
                self._name_whole(each, parts)
            else:
                headers.append((each.name, self._range(each)))
        self._nest(s, headers)
        self.expressions.scope = outer

    def _range(self, r: tree.Range) -> str:
        known = self.scope.find(r.name)
        if not isinstance(known, Bounded):
            raise ChoreoError(f"`{r.name}` is not a bounded variable", r.span)
        e = self.expressions
        low = e.dim(r.low) if r.low is not None else dim(0)
        high = e.dim(r.high) if r.high is not None else known.bound
        if high.value is not None and high.value < 0:
            high = Dim(None, f"{known.bound.atom} - {-high.value}")
            if known.bound.value is not None:
                high = dim(known.bound.value + int(high.text.rpartition(" ")[2]) * -1)
        if high.value is not None and known.bound.value is not None and high.value > known.bound.value:
            raise ChoreoError(f"the range ends at {high}, the bound is {known.bound}", r.span)
        step = e.dim(r.step).text if r.step is not None else "1"
        name = cpp_name(r.name)
        last = None if high.value is None else high.value - 1
        self.scope.names[r.name] = Bounded(dim(name), known.bound, low.value, last)
        return _header(name, low.text, high.text, step)

    def _nest(self, s: tree.Foreach, headers: list[tuple[str, str]]) -> None:
        after: list[str] = []
        for place, (name, header) in enumerate(headers):
            if place == len(headers) - 1 and vectorises(s, {name, *self._wholes(s)}):
                after = self._reductions(s)
            self.emit(header)
            self._depth += 1
        self.expressions.scope = self.scope.inner()
        for place, each in enumerate(s.body):
            found = reduction(each) if after else None
            known = self.scope.find(found.name) if found else None
            if found is not None and found.op in ("max", "min") and isinstance(known, Scalar):
                self._extreme(found.op, known, found.value)
            else:
                self.statement(each, s.body[place + 1 :])
        for _ in headers:
            self._depth -= 1
            self.emit("}")
        for line in filter(None, after):
            self.emit(line)

    def _wholes(self, s: tree.Foreach) -> set[str]:
        """Names that stand for all variables of the last bind."""
        last = s.ranges[-1]
        return (
            {last.whole, last.names[0]} - {""} if isinstance(last, tree.Bind) and not last.braced else set()
        )

    def _reductions(self, s: tree.Foreach) -> list[str]:
        """Write the pragma; give what must follow the loop (an empty line: nothing, but it is vectorised)."""
        clauses, after = [], [""]
        own = {each.name for each in s.body if isinstance(each, tree.DeclareScalar)}
        for each in s.body:
            found = reduction(each)
            if found is None or found.name in own:
                continue
            known = self.scope.find(found.name)
            if not isinstance(known, Scalar):
                continue  # said where it is translated
            clauses.append(f"reduction({found.op}:{known.text})")
            if found.op in ("max", "min"):
                flag = f"{known.text}_nan"
                self.emit(f"int {flag} = choreo::isnan_({known.text});")
                clauses.append(f"reduction(|:{flag})")
                after.append(f"if ({flag}) {known.text} = choreo::nan_of({known.text});")
        self.emit(f"#pragma omp simd {' '.join(dict.fromkeys(clauses))}".rstrip())
        return after

    def _extreme(self, op: str, known: Scalar, value: tree.Expr) -> None:
        """One step of a maximum that can be vectorised: NaN is noted, and put in after the loop."""
        one = self.fresh("v")
        sign = ">" if op == "max" else "<"
        self.emit(f"const {cpp_type(known.type)} {one} = {self.expressions.text(value)};")
        self.emit(f"{known.text} = {one} {sign} {known.text} ? {one} : {known.text};")
        self.emit(f"{known.text}_nan |= choreo::isnan_({one});")

    def _if(self, s: tree.If) -> None:
        with self.nested(f"if ({self.expressions.text(s.condition)})"):
            self._learn(s.condition)
            self.block(s.then)
        if s.other:
            with self.nested("else"):
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
            raise ChoreoError(f"a DMA from rank {len(a)} to rank {len(b)}", span)
        for x, y in zip(a, b, strict=True):
            equal = same(x, y)
            if equal is False:
                raise ChoreoError(f"a DMA from {shown(a)} to {shown(b)}", span)
            if equal is None:
                self.check(f"{x.text} == {y.text}", f"a DMA from {shown(a)} to {shown(b)}", span)


def _header(name: str, low: str, high: str, step: str) -> str:
    advance = f"++{name}" if step == "1" else f"{name} += {step}"
    return f"for (int64_t {name} = {low}; {name} < {high}; {advance}) {{"
