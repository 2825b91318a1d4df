"""Compares each step of the compiler with the one before, once, when a graph is first executed.

Kernels are judged by the graph that was lowered, so a mistake that the compiler made before is theirs too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.probes.compiler_steps.fx_stages import Stage
from kernelscope.probes.compiler_steps.graph_copies import text_of
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.draws.traced_draws import wrong_draw
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.node_kinds import results_of
from kernelscope.shadowing.result import ShadowResult

from .blame import Blame, blame_first_aten
from .culprits import culprit_of_step, first_wrong
from .difference import Compared, Difference, compare, made_by
from .draws import pair
from .first_aten import FirstAten
from .inputs import complete, placeholders, sizes_of
from .lines import frames_of_change, frames_of_output
from .partition import compare_partition, inputs_of_backward
from .side import Side
from .traced_graphs import compare_traced

_SAME = Compared(count=1)  # not changed at all


class StepsCheck:
    """The steps that led to one graph."""

    is_over = False  # in the first execution

    def __init__(self, stages: Sequence[Stage], lowered: LoweredGraph) -> None:
        self._graph = lowered.path
        self._names = [node.name for node in placeholders(lowered.module)]
        self._placeholders = placeholders(lowered.module)
        self._stages = {stage.name: stage for stage in stages}  # of graphs in graphs, the outer one is last
        self._sides: dict[int, Side] = {}
        self._start: FirstAten | None = None

    def run(self, inputs: Sequence[Any], result: ShadowResult) -> None:
        if len(inputs) != len(self._names):
            result.leave_out("compiler steps", "*", "the inputs of the graph are not those of its wrapper")
            result.counts.unjudged_stages += len(self._stages)
            return
        try:
            self._run(dict(zip(self._names, inputs, strict=True)), result)
        finally:
            self._forget()

    def by_name(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """What the graph is called with."""
        return dict(zip(self._names, inputs, strict=True)) if len(inputs) == len(self._names) else {}

    def again(
        self, inputs: Mapping[str, Any], backward: Sequence[StepsCheck], gradients: Mapping[str, Any]
    ) -> list[Culprit]:
        """What is wrong with the inputs of a later execution, also in its backward graphs; counts nothing.

        `gradients`: those that came in, by their names in the backward graphs; others are made up.
        """
        found, alive = ShadowResult(), {**inputs, **gradients}
        try:
            self._run(alive, found)
        finally:
            self._forget()
        cut = self._stages.get("partition")
        if backward and cut is not None and not found:
            sizes = sizes_of(self._placeholders, alive)
            saved = inputs_of_backward(cut, complete(cut.before, alive, sizes), sizes)
            for each in backward:
                each._run({**sizes, **saved}, found)
                each._forget()
        return found.culprits

    def _run(self, alive: Mapping[str, Any], result: ShadowResult) -> None:
        sizes = sizes_of(self._placeholders, alive)
        if (frozen := self._stages.get("freezing")) is not None:
            alive = {**frozen.constants, **alive}
        wrong: list[tuple[Blame, Difference]] = []
        for name, step in self._steps(alive, sizes).items():
            blame, difference = self._run_step(name, step, result)
            wrong += [(blame, difference)] if difference is not None else []
        if self._is_undone([difference for _, difference in wrong], alive, sizes):
            words = " and ".join(f"{blame.step}{blame.words}" for blame, _ in wrong)
            result.notes.append(
                f"These steps of the compiler undo each other's changes of {wrong[0][1].output}: {words}. "
                "The compiled graph computes what eager does."
            )
        else:
            result.add(*(culprit_of_step(*each, self._graph) for each in wrong))

    def _forget(self) -> None:
        """Tensors: the graphs are needed once more if a later execution is wrong."""
        self._sides.clear()
        self._start = None

    def _is_undone(
        self, wrong: Sequence[Difference], alive: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> bool:
        """Whether the last graph returns what eager does, though two steps or more changed it."""
        last, cut = self._stages.get("post-grad"), self._stages.get("partition")
        if len(wrong) < 2 or last is None or last.after is None or self._start is None:
            return False
        gradients = {f"output {i}" for i in range(cut.forward_outputs, 10_000)} if cut is not None else set()
        names = {difference.output for difference in wrong}
        if names & gradients or not names <= self._start.made.keys():
            return False
        side = Side(last.after, sizes, complete(last.after, alive, sizes), {})
        found = [compare(side, self._start.made, {}, name) for name in names]
        return all(each.count and each.difference is None for each in found)

    def _run_step(
        self, name: str, step: Callable[[], tuple[Compared, Blame]], result: ShadowResult
    ) -> tuple[Blame, Difference | None]:
        try:
            found, blame = step()
        except CannotEvaluate as error:
            result.leave_out(f"stage {name}", "*", str(error))
            result.counts.unjudged_stages += 1
            return Blame(name), None
        for output, reason in found.left_out.items():
            if reason:
                result.leave_out(f"stage {name}", output, reason)
        if found.count:
            result.counts.stages += 1
        else:
            result.counts.unjudged_stages += 1
        return blame, found.difference

    def _steps(
        self, alive: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> dict[str, Callable[[], tuple[Compared, Blame]]]:
        """By name, in the order of the compiler."""
        found: dict[str, Callable[[], tuple[Compared, Blame]]] = {}
        stages, joint = self._stages, self._stages.get("joint")
        if (traced := stages.get("pre-grad")) is not None and joint is not None:
            found["pre-grad"] = lambda: self._pre_grad(traced, joint, alive, sizes)
            found["first ATen graph"] = lambda: self._first_aten(traced, joint, alive, sizes)
        elif traced is not None:
            found["pre-grad"] = _unknown_inputs
        before = None
        for name in ("joint", "partition", "freezing", "post-grad"):
            stage = stages.get(name)
            if stage is None:
                continue
            if name == "partition":
                found[name] = lambda s=stage: self._partition(s, alive, sizes)  # type: ignore[misc]
            else:
                found[name] = lambda s=stage, b=before: self._passes(s, b, alive, sizes)  # type: ignore[misc]
            before = stage.after
        return found

    # -- one step --------------------------------------------------------------------------------------

    def _pre_grad(
        self, stage: Stage, joint: Stage, alive: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> tuple[Compared, Blame]:
        assert stage.after is not None
        if text_of(stage.before) == text_of(stage.after):
            return _SAME, Blame("pre-grad")
        start = self._started(stage, joint, alive, sizes)
        found = compare_traced(stage.before, stage.after, start.snapshot, start.traced)
        return found, self._passed_by(
            stage,
            found,
            lambda graph: compare_traced(stage.before, graph, start.snapshot, start.traced),
        )

    def _first_aten(
        self, stage: Stage, joint: Stage, alive: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> tuple[Compared, Blame]:
        start = self._start = self._started(stage, joint, alive, sizes)
        if (drawn := wrong_draw(start.graph, start.snapshot, start.traced)) is not None:
            blame, difference = drawn
            return Compared(difference, count=1), blame
        inputs = complete(joint.before, alive, sizes)
        found = start.compare(lambda drawn: self._side(joint.before, inputs, sizes, drawn))
        return found, blame_first_aten(start) if found.difference is not None else Blame("tracing")

    def _started(
        self, stage: Stage, joint: Stage, alive: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> FirstAten:
        assert stage.after is not None
        if stage.traced is None:
            raise CannotEvaluate("it is not known what the traced graph was compiled with")
        inputs = complete(joint.before, alive, sizes)
        return FirstAten(stage.after, stage.traced, joint.before, inputs, sizes)

    def _partition(
        self, stage: Stage, alive: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> tuple[Compared, Blame]:
        found = compare_partition(stage, complete(stage.before, alive, sizes), sizes)
        wrong = found.difference
        line = frames_of_output(stage.before, wrong.output) if wrong is not None else ()
        return found, Blame("partition", stage.by, origin=line)

    def _passes(
        self,
        stage: Stage,
        earlier: GraphModule | None,
        alive: Mapping[str, Any],
        sizes: Mapping[str, Any],
    ) -> tuple[Compared, Blame]:
        """From what the step before left, so that nothing in between is missed."""
        assert stage.after is not None
        is_chain = earlier is not None and len(results_of(earlier)) == len(results_of(stage.before))
        old = earlier if is_chain and earlier is not None else stage.before
        if text_of(old) == text_of(stage.after):
            return _SAME, Blame(stage.name)
        inputs = complete(old, alive, sizes)

        def against(graph: GraphModule, only: str = "") -> Compared:
            drawn = pair(old, graph, sizes)
            side = self._side(old, inputs, sizes, drawn[0])
            new = Side(graph, sizes, inputs, drawn[1])
            made = made_by(new)
            return compare(side, made, new.left_out, only)

        found = against(stage.after)
        return found, self._passed_by(stage, found, against)

    def _side(
        self,
        graph: GraphModule,
        inputs: Mapping[str, Any],
        sizes: Mapping[str, Any],
        drawn: Mapping[str, Any],
    ) -> Side:
        """Without random numbers its values are the same each time."""
        if drawn:
            return Side(graph, sizes, inputs, drawn)
        if id(graph) not in self._sides:
            self._sides[id(graph)] = Side(graph, sizes, inputs, {})
        return self._sides[id(graph)]

    def _passed_by(self, stage: Stage, found: Compared, against: Callable[[GraphModule], Compared]) -> Blame:
        """Which pass, and which pattern in it."""
        if found.difference is None:
            return Blame(stage.name)
        wrong = first_wrong(stage, lambda graph: against(graph).difference is not None)
        if wrong is None:
            return Blame(stage.name)
        at = next(i for i, each in enumerate(stage.passes) if each is wrong)
        before = stage.passes[at - 1].graph if at else stage.before
        line = frames_of_change(before, wrong.graph, found.difference.output)
        return Blame(stage.name, wrong.by, wrong.pattern, line)


def _unknown_inputs() -> tuple[Compared, Blame]:
    raise CannotEvaluate("no joint graph was made of it, so its inputs are unknown")
