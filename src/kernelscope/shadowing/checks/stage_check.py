"""Whether a stage of FX passes changed what the graph computes.

Kernels are judged by the graph that was lowered, so a mistake that a pass made before is theirs too. The
graphs before and after each stage are evaluated once, on the inputs of its first graph call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_flatten

from kernelscope.probes.compilation.fx_stages import Stage
from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.in_place import find_writers
from kernelscope.shadowing.reference.node_kinds import (
    aten,
    base_of,
    is_given,
    is_random,
    is_user_kernel,
    results_of,
    value_of,
)
from kernelscope.shadowing.reference.rounding import coarsest_eps
from kernelscope.shadowing.result import ShadowResult

from .judge import Verdict, judge


class StageCheck:
    """The stages that led to one graph."""

    def __init__(self, stages: list[Stage], lowered: LoweredGraph) -> None:
        self._stages = stages
        self._graph = lowered.path
        self._names = [node.name for node in lowered.module.graph.nodes if node.op == "placeholder"]
        self._inputs: dict[str, Any] = {}

    def give(self, inputs: Sequence[Any]) -> None:
        """What the graph is called with; kept until it is looked at."""
        if len(inputs) == len(self._names):
            self._inputs = dict(zip(self._names, inputs, strict=True))

    def run(self, variables: Mapping[str, Any], symbols: Mapping[str, Any], result: ShadowResult) -> None:
        """With its inputs, or where they are unknown, with the variables that the wrapper begins with."""
        alive = self._inputs or variables
        for stage in self._stages:
            assert stage.after is not None
            try:
                found = self._differs(stage, stage.after, alive, symbols)
            except CannotEvaluate as error:
                result.leave_out(f"stage {stage.name}", "*", str(error))
                result.counts.unjudged_stages += 1
                continue
            result.counts.stages += 1
            if found is not None:
                result.add(self._culprit(stage, *found, self._pass(stage, alive, symbols)))

    def _pass(self, stage: Stage, alive: Mapping[str, Any], symbols: Mapping[str, Any]) -> str:
        """The first pass after which the graph computes something else."""
        for name, graph in stage.passes:
            try:
                if self._differs(stage, graph, alive, symbols) is not None:
                    return name
            except CannotEvaluate:
                continue  # a graph in between may not be whole
        return ""

    def _differs(
        self, stage: Stage, after: GraphModule, alive: Mapping[str, Any], symbols: Mapping[str, Any]
    ) -> tuple[str, Node | None, Verdict] | None:
        if stage.name == "pre-grad":
            return _traced_differs(stage.before, after, alive)
        return _lowerable_differs(stage.before, after, alive, symbols)

    def _culprit(self, stage: Stage, output: str, node: Node | None, verdict: Verdict, by: str) -> Culprit:
        where = f" (pass {by})" if by else ""
        return Culprit(
            verdict="wrong-stage",
            reason=f"after the {stage.name} passes{where} {output} has another value: {verdict.reason}",
            index=-1,
            kernel_name=by or stage.name,
            kind="stage",
            argument=output,
            buffer=stage.name,
            node=node.name if node is not None else "",
            graph=self._graph,
            where=verdict.where,
            numbers=verdict.numbers,
        )


class _Side:
    """A graph of ATen operators before or after a stage, with what it returns and writes to its inputs."""

    def __init__(self, graph: GraphModule, symbols: Mapping[str, Any]) -> None:
        self._nodes = list(graph.graph.nodes)
        self.writes = find_writers(self._nodes)
        self.reference = Reference(graph, symbols, self.writes, triton=False)
        self.outputs = {f"output {i}": n for i, n in enumerate(results_of(graph)) if isinstance(n, Node)}
        for node in self._nodes:
            if node.target is aten.copy_.default and isinstance(target := node.args[0], Node):
                self.outputs[f"input {target.name}"] = node
        for base in self.writes.writers:
            if base.op == "placeholder":
                self.outputs[f"input {base.name}"] = base

    def given(self, inputs: Mapping[str, Any]) -> dict[Node, Any]:
        return {n: inputs[n.name] for n in self._nodes if n.op == "placeholder" and n.name in inputs}

    def order(self, names: Sequence[str]) -> list[Node]:
        """All that these outputs need, with what is written on the way to what they read."""
        writers, needed = self.writes.writers, set[Node]()
        todo = [self.outputs[name] for name in names]
        todo += [writer for node in todo for writer in writers.get(base_of(node), ())]
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += [*node.all_input_nodes]
                todo += [w for base, version in self.writes.needed_by(node) for w in writers[base][:version]]
        return [n for n in self._nodes if n in needed and n.op == "call_function"]

    def is_drawn(self, name: str) -> bool:
        """Whether random numbers go into it: the stages draw them in different ways."""
        return any(
            is_given(n)
            or is_random(n)
            or n.target is aten.bernoulli.p
            or torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
            for n in self.order([name])
        )


def _lowerable_differs(
    before: GraphModule, after: GraphModule, alive: Mapping[str, Any], symbols: Mapping[str, Any]
) -> tuple[str, Node | None, Verdict] | None:
    """Graphs of ATen operators: joint, forward, backward."""
    if any(is_user_kernel(node) for graph in (before, after) for node in graph.graph.nodes):
        raise CannotEvaluate("a user-defined Triton kernel writes in place, which this check does not follow")
    inputs = _inputs(before, alive, symbols)
    old, new = _Side(before, symbols), _Side(after, symbols)
    shared = [key for key in old.outputs if key in new.outputs]
    shared = [key for key in shared if not old.is_drawn(key) and not new.is_drawn(key)]
    if not shared:
        raise CannotEvaluate("all of its outputs depend on random numbers, or the stage replaced them")
    order, given = old.order(shared), old.given(inputs)
    eager, wide = old.reference.same(order, given), old.reference.double(order, given)
    made = new.reference.double(new.order(shared), new.given(inputs))
    eps = coarsest_eps(order, [])
    generator = torch.Generator().manual_seed(0)
    for key in shared:
        node = old.outputs[key]
        values = eager.get(node), wide.get(node), made.get(new.outputs[key])
        is_passed_on = node.op == "placeholder" and node not in old.writes.writers
        if is_passed_on or not all(isinstance(v, torch.Tensor) for v in values):
            continue
        e, r, c = (torch.as_tensor(v) for v in values)
        if c.shape != e.shape:
            continue

        def jittered(node: Node = node) -> torch.Tensor:
            value: torch.Tensor = old.reference.jittered(order, given, generator)[node]
            return value

        verdict = judge(c.to(e.dtype), e, lambda r=r: r, jittered, eps)  # type: ignore[misc]
        if verdict.is_wrong:
            return key, node, verdict
    return None


def _inputs(graph: GraphModule, alive: Mapping[str, Any], symbols: Mapping[str, Any]) -> dict[str, Any]:
    """Real inputs by name; what comes in only later, the gradients of outputs, is made up."""
    generator, found = torch.Generator().manual_seed(1), dict[str, Any]()
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            continue
        fake = value_of(node)
        if node.name in alive:
            found[node.name] = alive[node.name]
        elif isinstance(fake, torch.Tensor) and node.name.startswith("tangents"):
            shape = concrete_shape(fake, symbols)
            if not fake.is_floating_point():
                raise CannotEvaluate("one of its gradients is not a float")
            found[node.name] = torch.randn(shape, generator=generator).to(fake.dtype).to(fake.device)
    return found


def _traced_differs(
    before: GraphModule, after: GraphModule, alive: Mapping[str, Any]
) -> tuple[str, Node | None, Verdict] | None:
    """Graphs of torch functions, as Dynamo traced them: their inputs are those of the graph, in order."""
    names = [n for n in before.graph.nodes if n.op == "placeholder"]
    values = _in_order(names, alive)
    olds, news = _run(before, values), _run(after, values)
    try:
        wides = _run(before, [v.double() if _is_narrow(v) else v for v in values])
    except Exception:  # a constant or a cast inside that insists on its dtype
        wides = [o.double() if isinstance(o, torch.Tensor) and _is_narrow(o) else o for o in olds]
    if len(olds) != len(news):
        return None
    for i, (old, new, wide) in enumerate(zip(olds, news, wides, strict=True)):
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or old.shape != new.shape:
            continue
        eps = float(torch.finfo(old.dtype).eps) if old.is_floating_point() else 1e-7
        scale = math.sqrt(len(before.graph.nodes))  # a whole graph of roundings
        reference = wide.to(torch.complex128 if old.is_complex() else torch.float64)
        verdict = judge(
            new.to(old.dtype), old, lambda r=reference: r, lambda r=reference: r, eps * scale  # type: ignore[misc]
        )  # fmt: skip
        if verdict.is_wrong:
            return f"output {i}", None, verdict
    return None


def _in_order(placeholders: list[Node], alive: Mapping[str, Any]) -> list[Any]:
    inputs = [v for k, v in alive.items() if k.startswith(("primals_", "arg")) and k != "args"]
    inputs = [v for v in inputs if isinstance(v, torch.Tensor | int | float)]
    fakes = [n.meta.get("example_value", value_of(n)) for n in placeholders]
    if len(inputs) != len(fakes) or not all(map(_alike, fakes, inputs)):
        raise CannotEvaluate("the traced and the compiled graph take their inputs in different orders")
    return inputs


def _alike(fake: Any, real: Any) -> bool:
    if isinstance(fake, torch.Tensor):
        return isinstance(real, torch.Tensor) and fake.dtype == real.dtype and fake.dim() == real.dim()
    return not isinstance(real, torch.Tensor)


def _is_narrow(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize in (2, 4)


def _run(graph: GraphModule, values: list[Any]) -> list[Any]:
    """Evaluates a traced graph; the same seed each time, so that random numbers are the same too."""
    given = [v.clone() if isinstance(v, torch.Tensor) else v for v in values]
    functorch = torch._C._functorch
    depth = functorch.get_dynamic_layer_stack_depth()
    # Not torch.manual_seed: it would seed every GPU, of which only those here are put back.
    devices = sorted({v.device.index for v in given if isinstance(v, torch.Tensor) and v.is_cuda})
    with torch.random.fork_rng(devices=devices):
        for generator in (torch.default_generator, *(torch.cuda.default_generators[i] for i in devices)):
            generator.manual_seed(0)
        try:
            result = torch.fx.Interpreter(graph).run(*given)
        except Exception as error:
            first = str(error).partition("\n")[0][:200]
            raise CannotEvaluate(f"the traced graph cannot be run: {first}") from error
        finally:  # a transform (torch.func) that was entered in the graph, and not left
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    return tree_flatten(result)[0]
