"""The gradients of a compiled region, taken where its backward runs, and those of the uncompiled function."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

_COMPILED = "CompiledFunctionBackward"  # what AOTAutograd makes of a region
_COPY = "_ComputedBackward"  # of an input that is not a leaf, in front of its copy


@dataclass(slots=True)
class Backward:
    """What the backward of one region was given and returned."""

    tangents: list[torch.Tensor | None]  # by result, then by input that was written to
    gradients: list[torch.Tensor | None]  # by input
    is_known: list[bool]  # by input: whether its gradient could be told apart
    merged: list[int]  # inputs whose gradients were computed as that of the memory they share


@dataclass(slots=True)
class _Watch:
    """One compiled node of the autograd graph, until it has run."""

    outputs: Sequence[Any]
    edges: Sequence[GradientEdge | None]
    slots: list[int] = field(default_factory=list)  # by output: of the node; -1: not a result of its own
    caught: dict[int, torch.Tensor] = field(default_factory=dict)  # by output


def edges_of(inputs: Sequence[Any]) -> list[GradientEdge | None]:
    """By input: where its gradient goes. Ask before the region runs: it may write to the input."""
    return [
        get_gradient_edge(value) if isinstance(value, torch.Tensor) and value.requires_grad else None
        for value in inputs
    ]


def watch_backward(
    outputs: Sequence[Any],
    edges: Sequence[GradientEdge | None],
    begin: Callable[[], None],
    end: Callable[[Backward], None],
) -> bool:
    """Call `end` once, when the region's backward has run; whether there is one.

    `outputs` are the region's results and inputs. `begin` and `end` must not raise.
    """
    known = {edge.node for edge in edges if edge is not None}
    nodes = {node for value in outputs for node in _compiled_nodes(value, known)}
    if len(nodes) != 1:
        return False
    (node,) = nodes
    merged = _merged(outputs[len(outputs) - len(edges) :], edges)
    watch = _Watch(outputs, edges)
    met = set[tuple[Any, int]]()
    others = {(maker, value.output_nr) for value in outputs if (maker := _grad_fn(value)) is not None}
    for index, value in enumerate(outputs):
        maker = _grad_fn(value)
        watch.slots.append(-1)
        if maker is None or (maker, value.output_nr) in met:
            continue  # an input that was written to, and is returned: its gradient comes in once
        met.add((maker, value.output_nr))
        if maker is node:
            watch.slots[-1] = value.output_nr
        # What goes through a view of a result is already in that result's gradient, and what goes through
        # a view of an input never comes to the compiled node.
        elif maker not in known and _reaches(maker, node, known, others):
            _catch(watch, index, maker, value.output_nr)
    watch.outputs = ()
    handles: list[Any] = []

    def before(gradients: Any) -> None:
        begin()

    def after(made: tuple[Any, ...], given: tuple[Any, ...]) -> None:
        for handle in handles:
            handle.remove()
        tangents = [given[slot] if slot >= 0 else watch.caught.get(i) for i, slot in enumerate(watch.slots)]
        gradients, is_known = _by_input(node, watch.edges, made)
        is_known = [is_told and i not in merged for i, is_told in enumerate(is_known)]
        end(Backward(tangents, gradients, is_known, merged))

    handles += [node.register_prehook(before), node.register_hook(after)]
    return True


def _merged(inputs: Sequence[Any], edges: Sequence[GradientEdge | None]) -> list[int]:
    """Inputs in one memory, one of which was written to: AOTAutograd differentiates that memory instead."""
    by_memory: dict[int, list[int]] = {}
    for i, (value, edge) in enumerate(zip(inputs, edges, strict=True)):
        if edge is not None:
            by_memory.setdefault(value.untyped_storage()._cdata, []).append(i)

    def is_written(i: int) -> bool:
        edge, maker = edges[i], inputs[i].grad_fn
        return maker is not None and edge is not None and maker is not edge.node

    shared = [group for group in by_memory.values() if len(group) > 1 and any(map(is_written, group))]
    return [i for group in shared for i in group]


def _catch(watch: _Watch, index: int, maker: Any, slot: int) -> None:
    def before(gradients: Any) -> None:
        if gradients[slot] is not None:
            watch.caught[index] = gradients[slot]

    maker.register_prehook(before)


def _by_input(
    node: Any, edges: Sequence[GradientEdge | None], made: Sequence[Any]
) -> tuple[list[torch.Tensor | None], list[bool]]:
    found: list[torch.Tensor | None] = [None] * len(edges)
    is_known = [False] * len(edges)
    numbers = {(e.node, e.output_nr): i for i, e in enumerate(edges) if e is not None}
    for (maker, slot), gradient in zip(node.next_functions, made, strict=False):
        index = numbers.get((maker, slot)) if maker is not None else None
        if index is not None:
            found[index], is_known[index] = gradient, True
    return found, is_known


def _grad_fn(value: Any) -> Any:
    return value.grad_fn if isinstance(value, torch.Tensor) else None


def _compiled_nodes(value: Any, known: set[Any]) -> Iterator[Any]:
    """Behind this value, and in front of the region's inputs."""
    todo, seen = [_grad_fn(value)], set[Any]()
    while todo:
        node = todo.pop()
        if node is None or node in known or node in seen:
            continue
        seen.add(node)
        if node.name() == _COMPILED:
            yield node
        else:
            todo += [inner for inner, _ in node.next_functions]


def _reaches(maker: Any, node: Any, known: set[Any], others: set[tuple[Any, int]]) -> bool:
    """Whether a gradient gets from `maker` to `node`, other than through what `others` name."""
    todo, seen = [maker], set[Any]()
    while todo:
        each = todo.pop()
        if each is None or each in seen or each in known:
            continue
        seen.add(each)
        for inner, slot in each.next_functions:
            if (inner, slot) in others:
                continue
            if inner is node:
                return True
            todo.append(inner)
    return False


class OwnGradients:
    """Gradients of the function itself, where its autograd graph is not like that of the traced graph.

    Both ran in eager. With like autograd graphs they have the same gradients, and nothing is kept. The graphs
    differ where the function has a backward of its own, which Dynamo traced, or where Dynamo lost a `detach`.
    """

    def __init__(
        self, made: Sequence[Any], given: Sequence[Any], edges: Sequence[GradientEdge | None]
    ) -> None:
        """What the compiled code returned and was given; where the gradients of that go."""
        self._made = [weakref.ref(value) if isinstance(value, torch.Tensor) else None for value in made]
        self._edges = edges
        self._has_hooks = any(isinstance(v, torch.Tensor) and bool(v._backward_hooks) for v in given)
        self._kept: dict[int, Any] = {}  # by result of the compiled code: what the function computed

    def keep(self, returned: Sequence[Any], own: Sequence[Any], traced: Sequence[Any], leaves: Any) -> None:
        """What compiled frame, function and traced graph returned; the inputs of the last."""
        one = _form(own, self._edges)
        if one != _form(traced, edges_of(leaves)) and not self._has_hooks:
            numbers = {id(made()): i for i, made in enumerate(self._made) if made is not None}
            found = {numbers[id(r)]: o for r, o in zip(returned, own, strict=True) if id(r) in numbers}
            self._kept = {i: value for i, value in found.items() if _grad_fn(value) is not None}

    def take(self, tangents: Sequence[torch.Tensor | None]) -> dict[int, torch.Tensor | None]:
        """By input, once; empty if they are the same as those of the traced graph, or cannot be computed.

        The function ran on the program's own tensors. An input that others were computed from is left out:
        its gradient would come from the program's graph in front of the function too, and would use that up.
        """
        kept, self._kept = self._kept, {}
        wanted = [i for i, tangent in enumerate(tangents) if tangent is not None]
        if not kept or not all(i in kept for i in wanted):
            return {}
        in_front = _behind([edge.node for edge in self._edges if edge is not None])
        edges = {i: e for i, e in enumerate(self._edges) if e is not None and e.node not in in_front}
        inputs = {(edge.node, edge.output_nr): edge for edge in edges.values()}
        if not inputs:
            return {}
        made = torch.autograd.grad(
            [kept[i] for i in wanted], [*inputs.values()], [tangents[i] for i in wanted], allow_unused=True
        )
        found = dict(zip(inputs, made, strict=True))
        return {i: found[edge.node, edge.output_nr] for i, edge in edges.items()}


def _behind(nodes: Sequence[Any]) -> set[Any]:
    """What gradients that come to these nodes go on to."""
    todo, seen = [inner for node in nodes for inner, _ in node.next_functions], set[Any]()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [inner for inner, _ in node.next_functions]
    return seen


def _form(results: Sequence[Any], edges: Sequence[GradientEdge | None]) -> Any:
    """Which nodes an autograd graph has, and what each of them leads to; inputs by their number."""
    inputs = {(edge.node, edge.output_nr): i for i, edge in enumerate(edges) if edge is not None}
    known = {node for node, _ in inputs}

    def named(node: Any, slot: int) -> Any:
        if node is not None and node.name() == _COPY:
            node, slot = node.next_functions[0]
        return inputs.get((node, slot), "") if node in known else node.name() if node is not None else None

    tops = [value.grad_fn if isinstance(value, torch.Tensor) else None for value in results]
    found, todo, seen = Counter[Any](), [*tops], set[Any]()
    while todo:
        node = todo.pop()
        if node is None or node in seen or node in known:
            continue
        seen.add(node)
        found[node.name(), tuple(named(*each) for each in node.next_functions)] += 1
        todo += [inner for inner, _ in node.next_functions if inner is None or inner.name() != _COPY]
    return found, [top.name() if top is not None else None for top in tops]
