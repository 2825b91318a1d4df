"""Statements to C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kernelscope.gcu.choreo.cpp.declared.aliases import aliases
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import last, nodes

from .declared.declarations import Declarations
from .elision import moving_futures, reads_in_place
from .expressions import Expressions
from .shapes import Dim, dim
from .sizes.arithmetic import refuse_too_large
from .values import (
    HALVES,
    Bounded,
    Data,
    Fragment,
    Scalar,
    Scope,
    Several,
    cpp_type,
    line_mark,
    unquoted,
)
from .words.advice import of_assignment


class Statements(Declarations):
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
        self.aliases = aliases(function.body)
        self._forwarded: set[int] = set()  # DMAs that have nothing left to do
        self._serial = 0
        self._teams: list[str] = []
        self._thread_names: set[str] = set()
        self._part_names: dict[str, tuple[str, ...]] = {}
        self._tied: dict[str, set[str]] = {}
        found = [n for n in nodes(function.body) if isinstance(n, tree.DeclareEvent)]
        self._event_names = frozenset(n.name for n in found)
        self._shared_at: list[int | None] = []  # where the block's shared buffers are declared
        self.expressions = Expressions(scope, self.hold, self.quoted, checked)
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

    def hold(self, condition: str, message: str, span: Span) -> None:
        line = f"choreo::hold({condition}, {self.quoted(message, span)});"
        if not self.lines or self.lines[-1].strip() != line:
            self.emit(line)

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
                self.initialise(view.pointer, view.element, view.shape, skip.init)

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
                self.declare_buffer(s, rest)
            case tree.DeclareScalar():
                self.declare_scalar(s)
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
                self.with_variables(s)
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
                for each in s.targets:
                    self.arrived(each)
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

    def _assign(self, s: tree.Assign, rest: tree.Block) -> None:
        if isinstance(s.value, tree.Dma):
            if s.op != "=":
                raise ChoreoError("a DMA can only be assigned with =", s.span)
            in_place = self._elide and s.name not in self._moving
            in_place = in_place and reads_in_place(s, rest, self._function, self.aliases)
            self.future(s.name, s.value, s.span, in_place=in_place, moving=s.name in self._moving)
            return
        known = self.scope.find(s.name)
        if known is None and s.op == "=":
            self.name(s)
            return
        if isinstance(known, Fragment):
            self.change_matrix(known, s)
            return
        if not isinstance(known, Scalar) or not known.is_mutable:
            raise ChoreoError(of_assignment(s.name, known, self._function.parameters), s.span)
        number = self.expressions.assignable(s.value)
        refuse_too_large(number, known.type, s.span)
        value = number.text
        is_half = known.type in HALVES
        if s.op not in ("=", "+=", "-=", "*=") or (is_half and s.op != "="):
            value = self.expressions.combined(s.op[:-1], known, number, s.span)
        if is_half:
            self.emit(f"choreo::put({known.text}, {value});")
        elif s.op not in ("+=", "-=", "*="):
            self.emit(f"{known.text} = static_cast<{known.cpp}>({value});")
        else:
            self.emit(f"{known.text} {s.op} {value};")

    def _store(self, s: tree.Store) -> None:
        data = self.expressions.data(s.target.of)
        place = self.expressions.element(s.target)
        number = self.expressions.assignable(s.value)
        refuse_too_large(number, data.element, s.span)
        value = number.text
        if s.op != "=":
            value = self.expressions.combined(s.op[:-1], place, number, s.span)
        if data.element in HALVES:
            rounded = f"choreo::rounded_{data.element}("
            if isinstance(s.value, tree.Builtin) and value.startswith(rounded):
                value = value[len(rounded) : -1]  # being stored rounds it
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
