"""One compiled region, which of its executions are compared, and one way in which it may differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from kernelscope.events import Frame
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.program_state import without_function_modes
from kernelscope.shadowing.reference.node_kinds import can_be_left_out, effect_of, why_not_again
from kernelscope.shadowing.steps.inputs import CalledGraph

from .copies import Snapshot
from .eager_run import Eager, alone, random_states
from .gradients import edges_of

_FIRST = 4  # executions
_KINDS = 8  # of sizes and other numbers that are compared for themselves
_COMMUNICATES = ("_c10d_functional", "c10d", "_dtensor", "symm_mem")


class Unjudged(Exception):
    """Why a region is not compared, in a few words."""


@dataclass(slots=True)
class Region:
    """What Dynamo compiled from one frame under one set of guards."""

    name: str  # of the user's function
    names: list[str]  # of the graph's inputs
    compile_id: str  # 0/0
    module: GraphModule  # the graph as Dynamo traced it: a copy that no pass has touched
    origin: tuple[Frame, ...] = ()
    eager: Eager | None = None  # the traced graph on these inputs
    execution: int = 1  # that is compared
    called: Sequence[CalledGraph] = ()  # by it, of graphs whose steps were compared before
    called_back: Sequence[CalledGraph] = ()  # by its backward
    own: tuple[str, ...] = ()  # tensors that are attributes of the graph; their values come after the inputs
    right: dict[str, int] = field(default_factory=dict)  # by part: the last execution in which it was right

    def begin(self, execution: int) -> None:
        self.execution = execution
        if execution == 1:  # of this run of the program
            self.right.clear()

    def release(self) -> None:
        """The comparison is over, or waits for the backward: nothing is kept for the next one."""
        self.eager, self.called, self.called_back = None, (), ()

    def when_right(self, part: str) -> str:
        """A sentence; empty, where this part was not compared before."""
        last = self.right.get(part, 0) if part else 0
        if not last or last >= self.execution:
            return ""
        return (
            f"{self.name}: execution {last} was compared and is right, and execution {self.execution} is "
            "wrong: a value or a size that was compiled in as a constant may have changed in between."
        )

    def run(self, values: Sequence[Any], interpreter: Callable[[GraphModule], Any] | None = None) -> Any:
        """The traced graph on these values; with an interpreter, node by node."""
        graph = self.module if interpreter is None else _NodeByNode(self.module, interpreter)
        if not self.own:
            return graph(*values)
        prefix, count = "" if interpreter is None else "graph.", len(values) - len(self.own)
        own = dict(zip((prefix + name for name in self.own), values[count:], strict=True))
        return torch.func.functional_call(graph, own, tuple(values[:count]))


class _NodeByNode(torch.nn.Module):
    def __init__(self, graph: GraphModule, interpreter: Callable[[GraphModule], Any]) -> None:
        super().__init__()
        self.graph = graph
        self._interpreter = interpreter

    def forward(self, *values: Any) -> Any:
        return self._interpreter(self.graph).run(*values)


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the compiled function does otherwise."""

    what: str  # result 0 | input 2 after the call | gradient of input 1
    reason: str
    verdict: Verdict | None = None  # with both sides, as numbers or in words
    index: int = 0  # of the result or input
    kind: str = "result"  # result | input | gradient | layout | alias | unshared | raises


VALUES = ("result", "input", "gradient")  # kinds of differences


class KnownWrong(NamedTuple):
    """Culprits of another kind that were found up to some moment: later ones explain a difference."""

    steps: int  # of the compiler
    launches: int
    launch: int  # the next one's index


def refuse(region: Region, args: Sequence[Any]) -> None:
    """Raises, where it cannot be compared."""
    if torch._C._functorch.peek_interpreter_stack():
        raise Unjudged("it runs inside a transform of torch.func")
    if any(type(a).__name__ == "FakeTensor" for a in args):
        raise Unjudged("it runs on fake tensors")
    if (
        any(a.is_cuda for a in args if isinstance(a, torch.Tensor))
        and torch.cuda.is_current_stream_capturing()
    ):
        raise Unjudged("it runs while a CUDA graph is captured")
    for node in region.module.graph.nodes:
        if (effect := effect_of(node)) is not None and not can_be_left_out(effect):
            raise Unjudged(why_not_again(effect))
        if getattr(node.target, "namespace", "") in _COMMUNICATES:
            raise Unjudged("it communicates with other processes")


class Before(NamedTuple):
    """What a region is about to be called with."""

    eager: Eager
    given: list[Any]  # inputs of the graph, then the tensors that are its attributes
    edges: list[Any]  # by each of them: where its gradient goes


def begun(region: Region, names: Sequence[str], args: Sequence[Any], execution: int) -> Before:
    """An execution begins, whose inputs have these names: what it is compared with is copied."""
    region.begin(execution)
    refuse(region, args)
    with alone():
        # An optimizer's parameters are not inputs of the graph but attributes of it.
        tensors = dict(region.module.named_parameters()) | dict(region.module.named_buffers())
        given = [*args, *tensors.values()]
        inputs = Snapshot(given)
        edges = edges_of(given) if torch.is_grad_enabled() else [None] * len(given)
        states = random_states()
    region.own = tuple(tensors)
    region.names = [*names, *region.own]

    def call(values: list[Any]) -> Any:
        with without_function_modes():
            return region.run(values)

    region.eager = Eager(call, inputs, states, differentiates=torch.is_grad_enabled())
    return Before(region.eager, given, edges)


def ends_recomputation(error: Exception) -> bool:
    """Checkpointing ends a second forward pass in this way, as soon as it has what it needs."""
    return isinstance(error, torch.utils.checkpoint._StopRecomputationError)


class Executions:
    """Of one function, in one run of the program: the first four, the 8th, the 16th …, and any of a new size.

    A value that was made a constant when the function was compiled is right in the first execution, and may
    be wrong later: something that nothing guards has changed, or a size.
    """

    def __init__(self, *, every: bool) -> None:
        self._every = every
        self._run = -1  # of the program
        self._sizes = set[tuple[Any, ...]]()
        self.count = 0

    @property
    def is_first(self) -> bool:
        return self.count == 1

    def is_next_compared(self, run: int, args: Sequence[Any]) -> bool:
        """Another execution begins, with these inputs of the graph: sizes that may vary are among them."""
        if run != self._run:
            self._run, self.count = run, 0
            self._sizes.clear()
        self.count += 1
        sizes = tuple(value for value in args if not isinstance(value, torch.Tensor))
        is_new = len(self._sizes) < _KINDS and sizes not in self._sizes
        if is_new:
            self._sizes.add(sizes)
        is_power_of_two = self.count & (self.count - 1) == 0
        return is_new or self._every or self.count <= _FIRST or is_power_of_two
