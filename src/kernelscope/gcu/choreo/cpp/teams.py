"""Threads that synchronise: `inthreads`, events, barriers."""

from __future__ import annotations

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import children, has_parallel, names, nodes, root

from .loops.nests import Loops
from .shapes import Dim, dim, product
from .values import Events, Scalar, Several, Value, bounded


class Teams(Loops):
    """The part of a function's body whose threads must run at the same time."""

    uses_threads = False
    _teams: list[str]  # C++ objects, innermost last; "": no threads of its own
    _inside: int = 0  # inthreads around a statement
    _thread_names: set[str]  # what depends on the thread
    _event_names: frozenset[str]

    @property
    def in_team(self) -> bool:
        return bool(self._teams and self._teams[-1])

    def declare_thread(self, name: str, value: Value, span: Span) -> None:
        self._thread_names.add(name)
        self.scope.declare(name, value, span)

    def needs_team(self, s: tree.Parallel) -> bool:
        """Whether threads wait for one another, so that all of them must run at once."""
        own = {n.name for n in nodes(s.body) if isinstance(n, tree.DeclareEvent)}
        return _synchronises(s.body, self._event_names) or any(
            root(e) in self._event_names - own
            for n in nodes(s.body)
            if isinstance(n, tree.Wait | tree.Trigger)
            for e in (n.targets if isinstance(n, tree.Wait) else n.events)
        )

    def team(self, s: tree.Parallel, counted: list[tuple[list[str], tuple[Dim, ...]]]) -> None:
        self.uses_threads = True
        self._refuse_shared_scalars(s)
        outer = self.scope
        self.expressions.scope = outer.inner(1)
        closing = 0
        for given, dims in counted[:-1]:
            closing += self.open_level(given, dims, s, at_once=False)
        given, dims = counted[-1]
        self._shared_at.append(None if has_parallel(s.body) else len(self.lines))
        one, rank = self.fresh("team"), self.fresh("rank")
        what = f"{product(dims)} threads {'synchronise' if self.needs_team(s) else 'at once'}"
        message = self.quoted(f"{what}; at most 1024 can", s.span)
        self.emit(f"choreo::team {one}(world_, {product(dims)}, {message});")
        self.emit(f"{one}.run([&](const int64_t {rank}) {{")
        self._depth += 1
        self._from_rank(rank, given, dims, s)
        self._teams.append(one)
        self.expressions.scope = self.scope.inner()
        self.private_fragments(s.body)
        self.block(s.body)
        self._teams.pop()
        self._shared_at.pop()
        self._depth -= 1
        self.emit("});")
        for _each in range(closing):
            self._depth -= 1
            self.emit("}")
        self.expressions.scope = outer

    def _from_rank(self, rank: str, given: list[str], dims: tuple[Dim, ...], s: tree.Parallel) -> None:
        variables: list[object] = []
        for place, extent in enumerate(dims):
            named = given[place] if len(given) == len(dims) else ""
            one = self.local(named) if named else self.fresh("p")
            inner = product(dims[place + 1 :])
            text = rank if inner.value == 1 else f"{rank} / {inner.atom}"
            self.emit(f"const int64_t {one} = {text if place == 0 else f'({text}) % {extent.atom}'};")
            self.emit(f"(void){one};")
            variables.append(bounded(dim(one), extent))
            if named:
                self.declare_thread(named, bounded(dim(one), extent), s.span)
        if len(given) == 1 and len(dims) > 1:
            self.declare_thread(given[0], Several(tuple(variables)), s.span)

    def _refuse_shared_scalars(self, s: tree.Parallel) -> None:
        for each in _uniform(s.body):
            if isinstance(each, tree.Assign) and isinstance(self.scope.find(each.name), Scalar):
                message = f"`{each.name}` is written by every thread at once; write it in one `inthreads`"
                raise ChoreoError(message, each.span)

    def before_threads(self, place: int, lines: list[str]) -> None:
        """What all threads of a block share is declared before they start."""
        depth = self._depth - 1
        self.lines[place:place] = ["  " * depth + line for line in lines]
        self._shared_at = [
            at + len(lines) if at is not None and at >= place else at for at in self._shared_at
        ]

    # -- statements ------------------------------------------------------------------------------------

    def in_threads(self, s: tree.InThreads) -> None:
        if not self.in_team:
            raise ChoreoError("inthreads needs a parallel around it", s.span)
        if self._inside and s.is_async:
            raise ChoreoError("inthreads.async can only be the outermost inthreads", s.span)
        if not names(s.condition) & self._thread_names:
            raise ChoreoError("the condition of inthreads must depend on the thread", s.condition.span)
        with self.nested(f"if ({self.expressions.text(s.condition)})"), self.guarded():
            self._inside += 1
            self.block(s.body)
            self._inside -= 1
        if not s.is_async and not self._inside:
            self._barrier(s.span)

    def synchronise(self, s: tree.Sync) -> None:
        if s.scope == "fence":
            self.emit("std::atomic_thread_fence(std::memory_order_seq_cst);")
        elif s.scope in ("shared", "barrier"):
            written_as = f"sync.{s.scope}" + (f" : {s.level}" if s.level else "")
            if s.level not in ("", "block", "thread"):
                raise ChoreoError(f"{written_as}: only all threads of one block can synchronise", s.span)
            if not self.in_team:
                raise ChoreoError(f"{written_as} needs a parallel around it", s.span)
            self._barrier(s.span)
        elif s.scope == "global" and self.scope.depth:
            raise ChoreoError(
                "sync.global inside parallel: only threads of one block can synchronise", s.span
            )

    def _barrier(self, span: Span) -> None:
        message = self.quoted("some threads of the block never reach this barrier", span)
        self.emit(f"{self._teams[-1]}.barrier({message});")

    def declare_event(self, s: tree.DeclareEvent) -> None:
        self.uses_threads = True
        counts = tuple(self.expressions.dim(c) for c in s.counts)
        total = product(counts)
        if total.value is None or total.value < 1:
            raise ChoreoError("an array of events needs a size that is known now", s.span)
        name = self.fresh(s.name)
        line = f"choreo::event {name}[{total}];"
        place = self._shared_at[-1] if self._shared_at else None
        if s.scope == "shared" and not self._shared_at:
            raise ChoreoError("a shared event needs a parallel around it", s.span)
        if s.scope == "shared" and place is not None:
            self.before_threads(place, [line])
        else:
            self.emit(line)
        self.scope.declare(s.name, Events(s.name, name, counts), s.span)

    def _events(self, e: tree.Expr) -> Events | None:
        if root(e) not in self._event_names:
            return None
        value = self.expressions.value(e)
        return value if isinstance(value, Events) else None

    def trigger(self, s: tree.Trigger) -> None:
        for e in s.events:
            found = self._events(e)
            if found is None:
                raise ChoreoError("only an event can be triggered", s.span)
            self._each(found, "trigger(world_)")

    def wait_for_events(self, s: tree.Wait) -> None:
        for e in s.targets:
            found = self._events(e)
            if found is not None:
                text = f"this waits for event `{found.name}`, which no running thread can trigger"
                self._each(found, f"wait(world_, {self.quoted(text, s.span)})")

    def _each(self, events: Events, call: str) -> None:
        total = product(events.counts)
        if total.value == 1:
            self.emit(f"{events.pointer}[{events.offset}].{call};")
            return
        one = self.fresh("e")
        self.emit(f"for (int64_t {one} = 0; {one} < {total}; ++{one})")
        self.emit(f"  {events.pointer}[{events.offset.atom} + {one}].{call};")


def _synchronises(block: tree.Block, events: frozenset[str]) -> bool:
    """Whether the threads of a block wait for one another, not looking into a parallel inside."""
    for each in block:
        match each:
            case tree.InThreads() | tree.Sync(scope="shared" | "barrier"):
                return True
            case tree.Wait() if any(root(t) in events for t in each.targets):
                return True
            case tree.Trigger():
                return True
            case tree.Parallel():
                continue
        for part in ("body", "then", "other"):
            if _synchronises(getattr(each, part, ()), events):
                return True
    return False


def _uniform(node: object) -> list[object]:
    """Everything below a node that every thread does: not what is in an inthreads."""
    found: list[object] = []
    for child in children(node):
        if not isinstance(child, tree.InThreads):
            found += [child, *_uniform(child)]
    return found
