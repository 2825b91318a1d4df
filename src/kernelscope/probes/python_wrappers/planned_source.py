"""A wrapper with its fingerprints written into it.

A graph of fixed shapes reads and writes the same buffers in the same order at every execution, so after the
first one it is known which fingerprints the next ones need, and where. Here the wrapper's text gets
statements that take what launches find and leave: before each launch, or of several launches together, as
long as what waits is still there. A tensor that waits is deleted a little later than the wrapper says.
Needs no torch: a wrapper is text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernelscope.generated_code.calls import PREFIX, chooses_a_device, hook_name
from kernelscope.generated_code.syntax import last_name, walk
from kernelscope.generated_code.wrapper import program_functions

from .hooked_source import GRAPH_CALL, HERE, Codes, at, compiled, contained, in_a_graph, note

_TOGETHER = 32  # tensors that wait at most
_BYTES_IN_CACHE = 32 << 20  # of them: then they are still in a GPU's cache
_SMALL_LAUNCH = 16 << 20  # bytes: so little is ready on the GPU before the host has launched the next
_BYTES_OF_SMALL = 128 << 20  # that wait where launches are small: there, the number of kernels counts
_BYTES_HELD = 32 << 20  # of tensors that the wrapper would have deleted: so much more memory is in use
_POOL = "alloc_from_pool("
# Calls that launch nothing and write to nothing.
_HARMLESS = frozenset(
    {"assert_size_stride", "assert_alignment", "reinterpret_tensor", "get_raw_stream", "set_device", "item"}
)
BEGIN, FLUSH = f"{PREFIX}begin", f"{PREFIX}flush_"  # constants of the code; a flush has its number
EXECUTION = f"{PREFIX}execution"  # a local variable
_BRANCHES = (
    *(ast.If, ast.For, ast.While, ast.Try, ast.TryStar, ast.Match, ast.FunctionDef, ast.ClassDef),
    *(ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef),
)


# When what a launch leaves is read: right after it, before the next launch, or with what others leave,
# whatever their size, or as long as all of that is small.
When = Literal["at once", "before the next", "lazily", "while small"]
_WAITING = ("lazily", "while small")


class Unplannable(Exception):
    """Why this wrapper's fingerprints have to be taken launch by launch."""


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor to fingerprint: its number in the plan, and the expression with its address."""

    number: int
    variable: str
    address: str = "{}"  # the expression around the variable that has the same address as the tensor
    nbytes: int = 0
    memory: int = -1  # the number of its storage; -1 if that is not known

    @property
    def expression(self) -> str:
        return self.address.format(self.variable)


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """What one launch finds and leaves, where that is not known already."""

    steady: str  # the constant with the number that its note has for it
    before: tuple[Read, ...]
    after: tuple[Read, ...]
    writes: frozenset[str]  # variables
    beside: tuple[Read, ...] = ()  # handed over with what it leaves, where that is read at once
    overwrites: frozenset[int] = frozenset()  # storages


@dataclass(slots=True)
class PlannedSource:
    """The new code, and what the statements in it fingerprint."""

    codes: Codes = field(default_factory=dict)
    flushes: list[tuple[int, ...]] = field(default_factory=list)  # numbers of tensors, by number of the flush
    writes_inputs: bool = False  # the graph writes to memory that it was given


def plan_source(
    source: str, filename: str, launches: Mapping[str, PlannedLaunch], *, when: When = "before the next"
) -> PlannedSource:
    """The wrapper with these launches (by hook) noted, and what they find and leave fingerprinted."""
    tree = ast.parse(source, filename)
    if when in _WAITING and _POOL in source:  # pieces of a pool have other names for one memory
        when = "before the next"
    writer = _Writer(launches, {f.name for f in program_functions(tree)}, when)
    for function in program_functions(tree):
        writer.write(function)
    if writer.left:
        raise Unplannable(f"{len(writer.left)} launches are not statements of their own")
    writer.planned.codes = compiled(tree, filename)
    return writer.planned


def address_of(node: ast.expr | None) -> tuple[str, str] | None:
    """A variable, and the expression around it that has the address of this one."""
    match node:
        case ast.Name(id=name):
            return name, "{}"
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[base, _, _, offset]):
            found = address_of(base)
            if found is None or (isinstance(offset, ast.Constant) and offset.value == 0):
                return found
            rest = ", ".join(ast.unparse(a) for a in node.args[1:])
            return found[0], f"reinterpret_tensor({found[1]}, {rest})"
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
            return name, f"{{}}[{place}]"
    return None


class _Writer:
    def __init__(
        self, launches: Mapping[str, PlannedLaunch], functions: set[str], when: When = "before the next"
    ) -> None:
        self._when = when
        read = sum(read.nbytes for launch in launches.values() for read in (*launch.before, *launch.after))
        is_small = read <= _SMALL_LAUNCH * len(launches)
        self._bytes_together = _BYTES_OF_SMALL if is_small else _BYTES_IN_CACHE
        self._roots: dict[str, str] = {}  # variables that are views, or other names, of others
        self.planned = PlannedSource()
        self.left = set(launches)
        self._launches = launches
        self._functions = functions
        self._pending: list[Read] = []
        self._held: list[str] = []  # variables that the wrapper deletes, and that have to be read first
        self._given: set[str] = set()  # variables whose memory came from outside the graph

    def write(self, function: ast.FunctionDef) -> None:
        self._given = {a.arg for a in function.args.args}
        first = function.body[0]
        body = [*self._block(function.body), *self._flush(function.body[-1])]
        start = f"{GRAPH_CALL} = {HERE!r}.graph_call; {EXECUTION} = {BEGIN!r}.launch({GRAPH_CALL})"
        function.body = [*at(start, first), *body]

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        written: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, _BRANCHES):
                raise Unplannable("it has branches")
            if isinstance(statement, ast.With):
                if not all(chooses_a_device(item.context_expr) for item in statement.items):
                    raise Unplannable("it switches streams")  # an execution is fingerprinted on one
                written += self._flush(statement)
                statement.body = [*self._block(statement.body), *self._flush(statement.body[-1])]
                written.append(statement)
            else:
                written += self._statement(statement)
        return written

    def _statement(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        launch = self._launch(statement)
        if launch is not None:
            can_wait = self._can_wait(launch)
            self._pending += launch.before
            if can_wait:
                yield from at(in_a_graph(contained(note(launch.steady))), statement)
            else:
                yield from self._flush(statement, launch)
            yield statement
            self._pending += launch.after
            if self._when == "at once":
                yield from self._flush(statement, beside=launch.beside)
            self.planned.writes_inputs |= bool(launch.writes & self._given)
            return
        if self._holds(statement):
            return
        if self._is_in_the_way(statement):
            yield from self._flush(statement)
        yield statement
        self._follow(statement)

    def _can_wait(self, launch: PlannedLaunch) -> bool:
        """Whether what is pending, and what this launch finds, will still be there after it."""
        waiting = [*self._pending, *launch.before]
        all_of_it = [*waiting, *launch.after]
        if self._when not in _WAITING or len(all_of_it) > _TOGETHER:
            return False
        if self._when == "while small" and sum(read.nbytes for read in all_of_it) > self._bytes_together:
            return False
        written = {self._root(name) for name in launch.writes}
        # Tensors from outside may share memory.
        is_given = bool(launch.writes & self._given)
        return not any(
            self._root(read.variable) in written
            or read.memory in launch.overwrites
            or (is_given and read.variable in self._given)
            for read in waiting
        )

    def _holds(self, statement: ast.stmt) -> bool:
        """Whether this deletes a variable that can be deleted after the next flush as well."""
        match statement:
            case ast.Delete(targets=[ast.Name(id=name)]) if self._when in _WAITING:
                is_pending = any(read.variable == name for read in self._pending)
                held = {*self._held, name}
                if is_pending and sum(r.nbytes for r in self._pending if r.variable in held) <= _BYTES_HELD:
                    self._held.append(name)
                    return True
        return False

    def _root(self, name: str) -> str:
        while name in self._roots:
            name = self._roots[name]
        return name

    def _launch(self, statement: ast.stmt) -> PlannedLaunch | None:
        call = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
        if not isinstance(call, ast.Call):
            return None
        hook = hook_name(call)
        self.left.discard(hook)
        return self._launches.get(hook)

    def _follow(self, statement: ast.stmt) -> None:
        """What is pending under one name may go on under another; so may memory from outside."""
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return
        match statement.targets[0], address_of(statement.value):
            case ast.Name(id=name), (variable, address):
                if (root := self._root(variable)) != name:
                    self._roots[name] = root
                if variable in self._given:
                    self._given.add(name)
                if address == "{}":
                    self._pending = [
                        replace(read, variable=name) if read.variable == variable else read
                        for read in self._pending
                    ]
            case ast.Tuple(elts=names), (variable, _) if variable in self._given:
                self._given |= {n.id for n in names if isinstance(n, ast.Name)}

    def _is_in_the_way(self, statement: ast.stmt) -> bool:
        """Whether what is pending has to be read before this."""
        if isinstance(statement, ast.Return):
            return True
        pending = {read.variable for read in self._pending}
        for node in walk(statement):
            if isinstance(node, ast.Name):
                if node.id in pending and not isinstance(node.ctx, ast.Load):
                    return True
            elif isinstance(node, ast.Call) and self._may_write(last_name(node.func)):
                return True
        return False

    def _may_write(self, function: str) -> bool:
        if self._when not in _WAITING:  # only another function of the wrapper has launches of its own
            return function in self._functions
        return function not in _HARMLESS and not function.startswith("empty")

    def _flush(
        self, place: ast.stmt, launch: PlannedLaunch | None = None, beside: tuple[Read, ...] = ()
    ) -> Iterator[ast.stmt]:
        """Take what is pending, and make the note of the launch that comes next."""
        lines = []
        if self._pending:
            tensors = ", ".join(read.expression for read in (*self._pending, *beside))
            flush = f"{FLUSH}{len(self.planned.flushes)}"
            lines.append(f"{flush!r}.launch({EXECUTION}, {tensors})")
            self.planned.flushes.append(tuple(read.number for read in self._pending))
            self._pending = []
        if launch is not None:
            lines.append(contained(note(launch.steady)))
        if lines:
            yield from at(in_a_graph(*lines), place)
        if self._held:
            yield from at(f"del {', '.join(self._held)}", place)
            self._held = []
