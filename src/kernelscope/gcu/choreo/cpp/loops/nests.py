"""Loops to C++: `parallel`, `with`, `foreach`, and which of them are vectorised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelscope.gcu.choreo.cpp.declared.aliases import closed
from kernelscope.gcu.choreo.cpp.shapes import Dim, add, dim, shown
from kernelscope.gcu.choreo.cpp.values import (
    HALVES,
    Bounded,
    Buffers,
    Data,
    Future,
    LoopHead,
    Scalar,
    Scope,
    Several,
    bounded,
    cpp_name,
)
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import has_parallel, nodes, written

from .binds import Binds
from .blocks import parts
from .simd import can_stop, reduction, vectorises
from .stretches import in_stretches


class Loops(Binds):
    """The part of a function's body that repeats."""

    parallel: list[str]
    _shared_at: list[int | None]  # where the block's shared buffers are declared; None: where they stand
    _open_loops: int = 0  # around a statement, within its thread
    private_fragments: Any
    as_threads: bool = False  # threads of a block always run at once, also where none waits for another
    in_team: Any
    needs_team: Any
    team: Any
    declare_thread: Any
    check: Any
    hold: Any
    statement: Any
    guarded: Any
    quoted: Any

    @contextmanager
    def looping(self, loops: int) -> Iterator[None]:
        """What break and continue are inside of; 0: a thread, which they cannot leave."""
        outer, self._open_loops = self._open_loops, loops
        yield
        self._open_loops = outer

    def leave(self, s: tree.Stmt) -> None:
        word = "break" if isinstance(s, tree.Break) else "continue"
        if not self._open_loops:
            raise ChoreoError(f"`{word}` needs a loop around it", s.span)
        if word == "break" and self._open_loops > 1:
            raise ChoreoError("`break` would leave one of several loops; write a foreach for each", s.span)
        self.emit(f"{word};")

    def _parallel(self, s: tree.Parallel) -> None:
        counted = [self._level(level, s.span) for level in s.levels]
        self.parallel.append(", ".join(f"{'/'.join(n) or '_'} by {shown(d)[1:-1]}" for n, d in counted))
        with self.looping(0):
            if self.needs_team(s) or (self.as_threads and not self.in_team and not has_parallel(s.body)):
                self.team(s, counted)
            else:
                self._loops(counted, s, self._runs_at_once(s, len(counted)))

    def _runs_at_once(self, s: tree.Parallel, levels: int) -> bool:
        """Whether iterations may run on several threads of this machine.

        What threads of one block share is safe only if they run one after another, and what
        all of them write only if all of them do.
        """
        if self.scope.depth or any(
            isinstance(n, tree.Parallel) and self.needs_team(n) for n in nodes(s.body)
        ):
            return False
        shares = any(
            getattr(n, "scope", "") == "shared" or getattr(n, "target", "") == "shared" for n in nodes(s.body)
        )
        has_blocks = levels > 1 or has_parallel(s.body)
        return (has_blocks or not shares) and not self._is_written_by_all(s.body)

    def _is_written_by_all(self, body: tree.Block) -> bool:
        """Whether a scalar or a local buffer from outside is written."""
        assigned = {each.name for each in nodes(body) if isinstance(each, tree.Assign)}
        found = [self.scope.find(name) for name in assigned | closed(written(body), self.aliases)]
        return any(
            isinstance(v, Scalar | Buffers | Future) or (isinstance(v, Data) and v.scope == "local")
            for v in found
        )

    def _loops(
        self, counted: list[tuple[list[str], tuple[Dim, ...]]], s: tree.Parallel, at_once: bool
    ) -> None:
        outer, start = self.scope, len(self.lines)
        self.expressions.scope = outer.inner(1)
        closing = 0
        for level, (names, dims) in enumerate(counted):
            if level == len(counted) - 1:
                self._shared_at.append(None if has_parallel(s.body) else len(self.lines))
            closing += self.open_level(names, dims, s, at_once and level == 0)
        self.expressions.scope = self.scope.inner()
        self.private_fragments(s.body)
        self.block(s.body)
        self._shared_at.pop()
        stops = self.lines[start].strip().startswith("#pragma omp") and can_stop(self.lines[start:])
        if stops:  # no exception may leave a thread of OpenMP
            self.lines[start + 1] += " try {"
        for each in range(closing):
            self._depth -= 1
            self.emit("} catch (const choreo::stopped&) {}}" if stops and each == closing - 1 else "}")
        self.expressions.scope = outer

    def open_level(self, names: list[str], dims: tuple[Dim, ...], s: tree.Parallel, at_once: bool) -> int:
        """Loops over one level, and how many there are."""
        variables: list[object] = []
        for place, extent in enumerate(dims):
            given = names[place] if place < len(names) and len(names) == len(dims) else ""
            name = self.local(given) if given else self.fresh("p")
            if place == 0 and at_once and extent.value != 1:
                self.emit("#pragma omp parallel for if (wide)")
            self.emit(f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{")
            self._depth += 1
            variables.append(bounded(dim(name), extent))
            if given:
                self.declare_thread(given, bounded(dim(name), extent), s.span)
        if len(names) == 1 and len(dims) > 1:  # one name for all of them
            self.declare_thread(names[0], Several(tuple(variables)), s.span)
        return len(dims)

    def _level(self, level: tree.Level, span: Span) -> tuple[list[str], tuple[Dim, ...]]:
        dims = self.expressions.shape(level.bound, span)
        if level.names and len(level.names) not in (1, len(dims)):
            raise ChoreoError(f"{len(level.names)} names for {len(dims)} bounds", level.bound[0].span)
        for extent in dims:
            if extent.value is not None and extent.value < 1:
                raise ChoreoError("parallel needs a bound of at least 1", level.bound[0].span)
        return list(level.names), dims

    def _foreach(self, s: tree.Foreach) -> None:
        outer = self.scope
        self.expressions.scope = outer.inner()
        headers: list[tuple[str, LoopHead]] = []
        for each in s.ranges:
            if isinstance(each, tree.Bind):
                parts = self.bind(each)
                for name, extent in parts:
                    one = self.local(name)
                    self.scope.declare(name, bounded(dim(one), extent), each.span)
                    headers.append((name, LoopHead(one, "0", extent.text, "1")))
                self.name_whole(each, parts)
            else:
                headers += self._ranges(each)
        self._nest(s, headers)
        self.expressions.scope = outer

    def _ranges(self, r: tree.Range) -> list[tuple[str, LoopHead]]:
        """One loop, or a loop for each part of a variable that stands for several."""
        known = self.scope.find(r.name)
        if not isinstance(known, Several):
            return [(r.name, self._range(r))]
        parts = [p for p in known.items if isinstance(p, Bounded)]
        if len(parts) != len(known.items) or r.low is not None or r.high is not None or r.step is not None:
            raise ChoreoError(f"`{r.name}` is not a bounded variable that a range can have", r.span)
        names = self._part_names.get(r.name, tuple(f"{r.name}__{i}" for i in range(len(parts))))
        made: list[Bounded] = []
        headers: list[tuple[str, LoopHead]] = []
        for name, part in zip(names, parts, strict=True):
            one = self.fresh(cpp_name(name))
            made.append(bounded(dim(one), part.bound))
            self.scope.names[name] = made[-1]
            headers.append((name, LoopHead(one, "0", part.bound.text, "1")))
        self.scope.names[r.name] = Several(tuple(made))
        self.follow(r.name, Several(tuple(made)))
        return headers

    def _range(self, r: tree.Range) -> LoopHead:
        known = self.scope.find(r.name)
        if not isinstance(known, Bounded):
            raise ChoreoError(f"`{r.name}` is not a bounded variable", r.span)
        e = self.expressions
        low = e.dim(r.low) if r.low is not None else dim(0)
        high = known.bound if r.high is None else add(known.bound, e.dim(r.high))  # an offset to the bound
        step = self._step(r)
        name = self.fresh(cpp_name(r.name))
        last = None if high.value is None else high.value - 1
        offset = dim(0) if r.high is None else e.dim(r.high)
        beyond = offset.value is None or offset.value > 0
        found = Bounded(dim(name), known.bound, low.value, last, is_shifted=beyond)
        self.scope.names[r.name] = found
        self.follow(r.name, found)
        return LoopHead(name, low.text, high.text, step)

    def _step(self, r: tree.Range) -> str:
        step = self.expressions.dim(r.step) if r.step is not None else dim(1)
        if step.value is None:  # a loop that makes no step would never end
            self.check(f"{step.atom} > 0", f"the step must be above 0, not {step}", r.span)
            return f"choreo::max_({step}, int64_t(1))"
        if step.value < 1:
            raise ChoreoError(f"the step must be above 0, not {step}", r.span)
        return step.text

    def _nest(self, s: tree.Foreach, headers: list[tuple[str, LoopHead]]) -> None:
        if not headers:
            raise ChoreoError("there is nothing to count here", s.span)
        name, innermost = headers[-1]
        vectorised = not self.in_team and vectorises(s, {name, *self._wholes(s)}, self.aliases)
        vectorised = vectorised and not self._reduces_halves(s.body)
        for _, header in headers[:-1]:
            self.emit(f"{header} {{")
            self._depth += 1
        divided = parts(s.body, self.type_of) if vectorised and self.in_blocks else []
        if divided and (innermost.low, innermost.step) == ("0", "1"):
            if not self.of_everything(divided, innermost):
                self.over_blocks(divided, innermost)
        else:
            with self.looping(len(headers)):
                self.one_loop(s.body, innermost, vectorised)
        for _ in headers[:-1]:
            self._depth -= 1
            self.emit("}")

    def one_loop(
        self, body: tree.Block, header: LoopHead, vectorised: bool, finish: Callable[[], None] | None = None
    ) -> None:
        """One loop; `finish` writes what follows its statements."""
        start = len(self.lines)
        after = self._reductions(body) if vectorised else []
        head = len(self.lines)
        self.emit(f"{header} {{")
        self._depth += 1
        outer, self.expressions.scope = self.scope, self.scope.inner()
        for place, each in enumerate(body):
            found = reduction(each) if after else None
            known = self.scope.find(found.name) if found else None
            is_known = isinstance(known, Scalar) and known.is_mutable
            if found is not None and found.op in ("max", "min") and is_known:
                assert isinstance(known, Scalar)
                self._extreme(found.op, known, found.value)
            else:
                self.statement(each, body[place + 1 :])
        if finish is not None:
            finish()
        self.expressions.scope = outer
        self._depth -= 1
        self.emit("}")
        for line in filter(None, after):
            self.emit(line)
        if vectorised and can_stop(self.lines[start:]):  # no exception may leave a vectorised loop
            self.lines[start:] = [each for each in self.lines[start:] if "#pragma omp simd" not in each]
        elif after == [""]:
            self.lines[head - 1 :] = in_stretches(
                self.lines[head - 1 :], header, self.fresh, self._element_at
            )

    def _element_at(self, pointer: str) -> str:
        """The type of the elements that a C++ pointer points to; nothing if it is not that of one buffer."""
        scope: Scope | None = self.scope
        while scope is not None:
            for known in scope.names.values():
                data = known.data if isinstance(known, Future) else known
                if isinstance(data, Data) and data.pointer == pointer:
                    return data.element
            scope = scope.outer
        return ""

    def _wholes(self, s: tree.Foreach) -> set[str]:
        """Names that stand for all variables of the last bind."""
        last = s.ranges[-1]
        return (
            {last.whole, last.names[0]} - {""} if isinstance(last, tree.Bind) and not last.braced else set()
        )

    def _reduces_halves(self, body: tree.Block) -> bool:
        """Half precision is rounded after each step, so the steps keep their order."""
        found = [self.scope.find(each.name) for each in body if isinstance(each, tree.Assign)]
        return any(isinstance(known, Scalar) and known.type in HALVES for known in found)

    def _reductions(self, body: tree.Block) -> list[str]:
        """Write the pragma; give what must follow the loop (an empty line: nothing, but it is vectorised)."""
        clauses, after = [], [""]
        own = {each.name for each in body if isinstance(each, tree.DeclareScalar)}
        for each in body:
            found = reduction(each)
            if found is None or found.name in own:
                continue
            known = self.scope.find(found.name)
            if not isinstance(known, Scalar) or not known.is_mutable:
                continue  # an error where it is translated
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
        self.emit(f"const {known.cpp} {one} = {self.expressions.text(value)};")
        self.emit(f"{known.text} = {one} {sign} {known.text} ? {one} : {known.text};")
        self.emit(f"{known.text}_nan |= choreo::isnan_({one});")
