"""Calls of a traced graph that draw random numbers: eager against what the compiler makes of them.

The numbers themselves cannot be compared, but what they are drawn from can: each call runs many times as it
is, and many times as the compiler takes it apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.events import Frame
from kernelscope.probes.compiler_steps.fx_stages import Traced
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.generator_state import seeded
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.small_errors.rounding import eps_of
from kernelscope.shadowing.regions.copies import Snapshot
from kernelscope.shadowing.regions.modes.operator_modes import Notes
from kernelscope.shadowing.steps.blame import Blame, arguments_in_words
from kernelscope.shadowing.steps.difference import Difference
from kernelscope.shadowing.steps.lines import frames_of
from kernelscope.shadowing.steps.tape import Tape, drawing_as_compiled
from kernelscope.shadowing.steps.traced_graphs import WithoutEffects, run_traced

from .distributions import described, difference

_MAY_DRAW = re.compile(
    "drop|rand|bernoulli|multinomial|normal|uniform|expon|poisson|rrelu|gumbel|geometric|cauchy|gamma"
    "|binomial|dirichlet|sample|scaled_dot_product|rnn|lstm|gru|checkpoint|cond|invoke_subgraph|scan|while"
)
_OPERATORS = 8  # of one call are looked at, to name one


@dataclass(frozen=True, slots=True)
class _Call:
    node: str
    name: str  # of the function
    run: Callable[[Any, Any], Any]
    args: Any
    kwargs: Any
    origin: tuple[Frame, ...] = ()


def wrong_draw(graph: GraphModule, inputs: Snapshot, traced: Traced) -> tuple[Blame, Difference] | None:
    """The first call that draws from another distribution once it is compiled."""
    if not any(_MAY_DRAW.search(_name(node)) for node in graph.graph.nodes):
        return None
    notes, drawing = Notes(), list[str]()
    run_traced(graph, inputs, traced, mode=notes, runner=lambda g: _Finds(g, notes, drawing))
    if not drawing:
        return None
    calls: dict[Any, _Call] = {}
    run_traced(graph, inputs, traced, runner=lambda g: _Keeps(g, drawing, calls))
    for call in calls.values():
        if (found := _compared(call, traced)) is not None:
            return found
    return None


class _Finds(WithoutEffects):
    """Notes the nodes that draw."""

    def __init__(self, graph: GraphModule, notes: Notes, drawing: list[str]) -> None:
        super().__init__(graph)
        self._notes, self._drawing = notes, drawing

    def run_node(self, n: Node) -> Any:
        self._notes.draws = False
        made = super().run_node(n)
        if self._notes.draws:
            self._drawing.append(n.name)
        return made


class _Keeps(WithoutEffects):
    """Keeps what they are called with; of calls that are alike, the first."""

    def __init__(self, graph: GraphModule, drawing: list[str], calls: dict[Any, _Call]) -> None:
        super().__init__(graph)
        self._drawing, self._calls = drawing, calls

    def run_node(self, n: Node) -> Any:
        if n.name in self._drawing:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            key = _name(n), str(tree_map(described, (args, kwargs)))
            if key not in self._calls:
                run: Any = partial(getattr(self, n.op), n.target)
                apart, named = _apart((args, kwargs))
                self._calls[key] = _Call(n.name, _name(n), run, apart, named, frames_of(n))
        return super().run_node(n)


def _compared(call: _Call, traced: Traced) -> tuple[Blame, Difference] | None:
    try:
        if not (reason := _why_other(call, traced)):
            return None
        blame = _blame(call, traced)
    except Exception as error:
        first = str(error).partition("\n")[0][:200]
        raise CannotEvaluate(f"{call.name} draws random numbers, and cannot be run again: {first}") from error
    verdict = Verdict(True, reason=f"it is drawn from another distribution: {reason}")
    return blame, Difference(f"what {call.node} draws", call.node, verdict)


def _blame(call: _Call, traced: Traced) -> Blame:
    """The innermost operator that draws otherwise when it is decomposed, else the function."""
    tape = Tape(is_fixed=False)
    with drawing_as_compiled(tape):
        _drawn(call, traced, 0)
    for operator, args, kwargs in tape.taken_apart[:_OPERATORS]:
        run: Any = partial(_call, operator)
        inner = _Call(call.node, str(operator), run, *_apart((args, kwargs)))
        if _why_other(inner, traced):
            words = arguments_in_words(operator, args, kwargs)
            return Blame("decomposition", str(operator), words, call.origin)
    return Blame("decomposition", call.name, origin=call.origin)


def _why_other(call: _Call, traced: Traced) -> str:
    def eager(number: int) -> torch.Tensor:
        return _drawn(call, traced, number)

    def compiled(number: int) -> torch.Tensor:
        with drawing_as_compiled(Tape(is_fixed=False)):
            return _drawn(call, traced, number)

    dtypes = {t.dtype for t in _tensors((call.args, call.kwargs)) if t.is_floating_point()}
    with Notes() as notes:  # a library may compute with fewer digits than the dtype has
        eager(0)
    return difference(eager, compiled, max(notes.eps, *map(eps_of, [*dtypes, torch.float32])))


def _drawn(call: _Call, traced: Traced, number: int) -> torch.Tensor:
    """The numbers of one run."""
    args, kwargs = _apart((call.args, call.kwargs))
    with ExitStack() as stack:
        stack.enter_context(seeded(number))
        stack.enter_context(torch.no_grad())
        for device, dtype in traced.autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        made = call.run(args, kwargs)
    parts = [_reals(part).flatten().double().cpu() for part in _tensors(made)]
    return torch.cat(parts) if parts else torch.zeros(0)


def _call(operator: Any, args: Any, kwargs: Any) -> Any:
    return operator(*args, **kwargs)


def _reals(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _apart(value: Any) -> Any:
    return tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, value)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    yield from (part for part in tree_leaves(value) if isinstance(part, torch.Tensor))


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
