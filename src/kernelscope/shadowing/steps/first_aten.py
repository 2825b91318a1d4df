"""The graph that Dynamo traced against the first ATen graph: functionalized, decomposed, with its gradients.

Eager runs the traced graph; the ATen graph has the float64 run and the runs with small errors, so its result
takes the place of the reference. What is wrong is looked at a second time the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelscope.probes.compiler_steps.fx_stages import Traced
from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.draws.unused_draws import UnusedDraws
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.regions.copies import Snapshot
from kernelscope.shadowing.regions.modes.wide_mode import Wide

from .correspondence import (
    described_inputs,
    described_outputs,
    index_of,
    index_of_input,
    kind_of,
    placed,
    traced_inputs,
)
from .difference import Compared, Made, compare
from .draws import draws
from .functionalized import differ, first_difference
from .side import Side
from .tape import Tape, drawing_as_compiled
from .traced_graphs import TracedRun, WithoutEffects, run_traced, snapshot_of, without_recomputing


class FirstAten:
    """One traced graph, the ATen graph that AOTAutograd made of it, and inputs for both."""

    def __init__(
        self,
        graph: GraphModule,
        traced: Traced,
        aten: GraphModule,
        inputs: Mapping[str, Any],
        sizes: Mapping[str, Any],
    ) -> None:
        self.graph = without_recomputing(graph)
        self.traced, self.aten, self._inputs = traced, aten, inputs
        self.snapshot: Snapshot = snapshot_of(traced_inputs(aten, traced, inputs, sizes), traced)
        self._described = described_inputs(aten)
        self.made: dict[str, Made] = {}  # what eager gives, by output of the ATen graph

    def compare(self, side_of: Callable[[Mapping[str, Any]], Side]) -> Compared:
        """`side_of` makes a side of the ATen graph, of the random numbers that it draws."""
        tape = Tape() if draws(self.aten) else None
        made, left_out = self._evaluated(tape)
        if tape is not None and not tape.is_of(self.aten) and (unused := self._unused_draws()):
            tape = Tape(unused=unused)
            made, left_out = self._evaluated(tape)
        self.made = made
        side = side_of(tape.for_graph(self.aten) if tape is not None else {})
        found = compare(side, made, left_out)
        if (difference := found.difference) is not None:
            second = (
                self._second(side, difference.output, made.get(difference.output)) if tape is None else None
            )
            if second is None:
                _swap(difference.verdict.numbers)
            else:
                found.difference = replace(difference, verdict=second) if second.is_wrong else None
        return found

    def _evaluated(self, tape: Tape | None) -> tuple[dict[str, Made], dict[str, str]]:
        mode = drawing_as_compiled(tape) if tape is not None else None
        run = run_traced(self.graph, self.snapshot, self.traced, mode=mode)
        return self._made(run, drawing_as_compiled(tape) if tape is not None else None)

    def _unused_draws(self) -> frozenset[int]:
        """Calls that draw numbers which no result depends on: the ATen graph does not have them."""
        follows = UnusedDraws()
        mode = drawing_as_compiled(follows)
        run = run_traced(self.graph, self.snapshot, self.traced, mode=mode)
        return follows.unused((run.results, run.inputs))

    def run_all(self, mode: Any, runner: Callable[[GraphModule], torch.fx.Interpreter]) -> None:
        """Forward and backward, under this mode."""
        self._made(run_traced(self.graph, self.snapshot, self.traced, mode=mode, runner=runner), mode)

    def differs_functionalized(self) -> bool:
        """Whether the traced graph computes something else once its writes are functional, in eager."""
        try:
            one, other = (
                self._functionalized(WithoutEffects, False),
                self._functionalized(WithoutEffects, True),
            )
        except CannotEvaluate:
            return False
        pairs = zip([*one.results, *one.inputs], [*other.results, *other.inputs], strict=True)
        return any(differ(a, b) for a, b in pairs)

    def first_written_otherwise(self) -> Node | None:
        """The node of the traced graph after which it does."""
        return first_difference(self.graph, lambda kept, is_on: self._functionalized(kept, is_on).results)

    def _functionalized(self, runner: Callable[[GraphModule], Any], is_on: bool) -> TracedRun:
        plain = Traced(self.traced.inputs, False, self.traced.autocast)
        around = torch.func.functionalize if is_on else None
        return run_traced(self.graph, self.snapshot, plain, around=around, runner=runner)

    def _second(self, side: Side, name: str, made: Made | None) -> Verdict | None:
        """What the ATen graph computes, judged by the traced graph in eager and float64; None: cannot."""
        if made is None or name not in side.outputs:
            return None
        computed = side.eager(name)
        if not isinstance(made.value, torch.Tensor) or not isinstance(computed, torch.Tensor):
            return None
        if computed.shape != made.value.shape or computed.dtype != made.value.dtype:
            return None
        generator = torch.Generator().manual_seed(0)
        eps = side.eps
        try:
            return judge(
                computed,
                made.value.detach(),
                lambda: self._wide(name, None),
                lambda: self._wide(name, generator),
                eps,
            )
        except Exception:  # not everything runs in float64
            return None

    def _wide(self, name: str, generator: torch.Generator | None) -> torch.Tensor:
        mode = Wide(generator)
        made, _ = self._made(run_traced(self.graph, self.snapshot, self.traced, mode=mode, wide=True), mode)
        value: torch.Tensor = made[name].value.detach()
        return value

    def _made(self, run: TracedRun, mode: Any = None) -> tuple[dict[str, Made], dict[str, str]]:
        """By output of the ATen graph: what the traced graph gives; and why it does not."""
        made: dict[str, Made] = {}
        left_out: dict[str, str] = {}
        gradients: list[torch.Tensor | None] | str | None = None
        for i, description in enumerate(described_outputs(self.aten)):
            name, kind = f"output {i}", kind_of(description)
            if kind == "GradAOTOutput":
                gradients = self._gradients(run, mode) if gradients is None else gradients
                index = index_of(description.grad_of)
                if isinstance(gradients, str) or index is None:
                    left_out[name] = (
                        gradients if isinstance(gradients, str) else "it is the gradient of a base"
                    )
                else:
                    made[name] = _made(gradients[index])
            elif description is None:
                made[name] = Made(None)
            elif "Token" in kind:
                left_out[name] = ""  # stands for an order of effects, and has no value
            else:
                value = self._output(run, description)
                if value is _UNKNOWN:
                    left_out[name] = f"the traced graph does not return it ({kind})"
                else:
                    made[name] = _made(value)
        returned = [d.mutated_input for d in described_outputs(self.aten) if kind_of(d) in _MUTATIONS]
        for node_name, description in self._described.items():
            after = self._after(run, description)
            if description in returned or kind_of(description) == "TangentAOTInput":
                continue
            if isinstance(after, torch.Tensor):
                made[f"input {node_name}"] = _made(after)
            elif isinstance(self._inputs.get(node_name), torch.Tensor):
                left_out[f"input {node_name}"] = "it is not known which input of the traced graph it is"
        return made, left_out

    def _after(self, run: TracedRun, description: Any) -> Any:
        """An input of the ATen graph, as it is after the call."""
        if kind_of(description) in ("ParamAOTInput", "BufferAOTInput"):
            return run.own.get(description.target, _UNKNOWN)
        index = index_of_input(description)
        if index is None or not isinstance(after := run.inputs[index], torch.Tensor):
            return _UNKNOWN
        if index_of(description) is not None:
            return after
        name = next(name for name, other in self._described.items() if other == description)
        before = self._inputs[name]
        return placed(after, before.storage_offset(), before.shape, before.stride(), after.dtype)

    def _output(self, run: TracedRun, description: Any) -> Any:
        kind = kind_of(description)
        if (index := index_of(description)) is not None:
            return run.results[index]
        if kind in _MUTATIONS:
            return self._after(run, description.mutated_input)
        if kind == "IntermediateBaseAOTOutput":
            index = index_of(description.base_of)
            base = getattr(run.results[index], "_base", None) if index is not None else None
            return base if base is not None else _UNKNOWN
        return _UNKNOWN

    def _gradients(self, run: TracedRun, mode: Any) -> list[torch.Tensor | None] | str:
        outputs: list[Any] = []
        tangents: list[torch.Tensor] = []
        for name, description in self._described.items():
            if kind_of(description) != "TangentAOTInput":
                continue
            value, tangent = self._output(run, description.output), self._inputs.get(name)
            if not isinstance(value, torch.Tensor) or not isinstance(tangent, torch.Tensor):
                return f"the traced graph does not return what {name} is the gradient of"
            if value.shape != tangent.shape:
                return f"{name} has shape {list(tangent.shape)}, the output {list(value.shape)}"
            outputs.append(value)
            tangents.append(tangent.to(value.dtype))
            if isinstance(mode, Wide):
                mode.learn(tangents[-1], tangent.dtype)
        try:
            if mode is None:
                return run.gradients(outputs, tangents)
            with mode:
                return run.gradients(outputs, tangents)
        except Exception as error:  # the backward of invoke_subgraph runs only inside the compiler
            return f"the traced graph cannot be differentiated: {str(error).partition(chr(10))[0][:200]}"


_UNKNOWN = object()
_MUTATIONS = ("InputMutationAOTOutput",)


def _swap(numbers: dict[str, Any]) -> None:
    """The ATen graph was the reference, which is wrong; and so is its float64."""
    numbers.pop("float64", None)
    swapped = {"compiled": numbers.get("eager"), "eager": numbers.get("compiled")}
    numbers |= {name: value for name, value in swapped.items() if value is not None}


def _made(value: Any) -> Made:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return Made(value, value.dtype)
    return Made(value)
