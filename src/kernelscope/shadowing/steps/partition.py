"""Forward and backward graph, one after the other, against the joint graph that they were cut from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import GraphModule, Node

from kernelscope.probes.compiler_steps.fx_stages import Stage
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.node_kinds import is_symbolic, results_of

from .difference import Compared, Made, compare, made_by
from .draws import pair
from .inputs import placeholders
from .side import Side


def compare_partition(stage: Stage, inputs: Mapping[str, Any], sizes: Mapping[str, Any]) -> Compared:
    """The backward graph gets what the forward graph saves, by position, and made-up gradients."""
    joint, forward, backward = stage.before, stage.after, stage.backward
    assert forward is not None
    assert backward is not None
    drawn = pair(joint, forward, sizes)
    side, first = Side(joint, sizes, inputs, drawn[0]), Side(forward, sizes, inputs, drawn[1])
    made = made_by(first)
    count = _count_of(stage)
    again = _drawn_again(joint, backward, drawn[0])
    second = Side(backward, sizes, {**inputs, **_saved(first, first.eager, count, backward)}, again)
    # In float64 from the start: a comparison with rounded values may come out the other way.
    exact = Side(backward, sizes, {**inputs, **_saved(first, first.wide, count, backward)}, again)
    gradients = {name: _exactly(exact, name, value) for name, value in made_by(second).items()}
    found = {name: value for name, value in made.items() if _index(name) < count}
    left_out = {name: why for name, why in first.left_out.items() if _index(name) < count}
    for i in range(len(results_of(joint)) - count):
        name = f"output {i}"
        if name in second.left_out:
            left_out[f"output {count + i}"] = second.left_out[name]
        elif name in gradients:
            found[f"output {count + i}"] = gradients[name]
    found |= {name: value for name, value in gradients.items() if name.startswith("input ")}
    return compare(side, found, left_out)


def inputs_of_backward(stage: Stage, inputs: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """By name: what the forward graph saves, and the gradients among the inputs of the joint graph."""
    assert stage.after is not None
    assert stage.backward is not None
    first = Side(stage.after, sizes, inputs, pair(stage.before, stage.after, sizes)[1])
    return {**inputs, **_saved(first, first.eager, _count_of(stage), stage.backward)}


def _count_of(stage: Stage) -> int:
    """How many outputs of the joint graph are not gradients."""
    assert stage.backward is not None
    return stage.forward_outputs or len(results_of(stage.before)) - len(results_of(stage.backward))


def _exactly(side: Side, name: str, made: Made) -> Made:
    value = side.wide(name)
    return made if name in side.left_out else Made(value, made.dtype, made.again)


def _saved(first: Side, value_of: Callable[[str], Any], count: int, backward: GraphModule) -> dict[str, Any]:
    """By input of the backward graph; sizes and tensors are each passed on in their order."""
    sizes: list[Any] = []
    tensors: list[Any] = []
    for name, node in list(first.outputs.items()):
        if _index(name) < count or not name.startswith("output "):
            continue
        value = value_of(name) if name not in first.left_out else None
        (sizes if isinstance(node, Node) and is_symbolic(node) else tensors).append(value)
    wanted = [node for node in placeholders(backward) if not _comes_later(node)]
    kinds = [[n for n in wanted if is_symbolic(n)], [n for n in wanted if not is_symbolic(n)]]
    found: dict[str, Any] = {}
    for nodes, values in zip(kinds, (sizes, tensors), strict=True):
        if len(nodes) != len(values):
            raise CannotEvaluate("the backward graph does not take what the forward graph saves")
        found |= {n.name: v for n, v in zip(nodes, values, strict=True) if v is not None}
    return found


def _comes_later(node: Node) -> bool:
    return node.name.startswith(("tangents", "bwd_"))


def _index(name: str) -> int:
    return int(name.removeprefix("output ")) if name.startswith("output ") else -1


def _drawn_again(joint: GraphModule, backward: GraphModule, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """A draw that is repeated in the backward graph keeps its name there."""
    names = {node.name for node in joint.graph.nodes}
    return {n.name: drawn[n.name] for n in backward.graph.nodes if n.name in names and n.name in drawn}
