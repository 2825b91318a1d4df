"""The gradients of a compiled region, taken where its backward runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

_COMPILED = "CompiledFunctionBackward"  # what AOTAutograd makes of a region


@dataclass(slots=True)
class Backward:
    """What the backward of one region was given and returned."""

    tangents: list[torch.Tensor | None]  # by result, then by input that was written to
    gradients: list[torch.Tensor | None]  # by input
    is_known: list[bool]  # by input: whether its gradient could be told apart


@dataclass(slots=True)
class _Watch:
    """One compiled node of the autograd graph, until it has run."""

    outputs: Sequence[Any]
    edges: Sequence[GradientEdge | None]
    slots: list[int] = field(default_factory=list)  # by output: of the node; -1: reaches it through views
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
    watch = _Watch(outputs, edges)
    direct = {value.output_nr for value in outputs if _grad_fn(value) is node}
    for index, value in enumerate(outputs):
        maker = _grad_fn(value)
        if maker is node:
            watch.slots.append(value.output_nr)
            continue
        watch.slots.append(-1)
        # What goes through a view of a result is already in that result's gradient, and what goes through
        # a view of an input never comes to the compiled node.
        slots = set(_slots(maker, node, known)) if maker is not None and maker not in known else set()
        if slots and not direct & slots:
            _catch(watch, index, maker, value.output_nr)
    watch.outputs = ()
    handles: list[Any] = []

    def before(gradients: Any) -> None:
        begin()

    def after(made: tuple[Any, ...], given: tuple[Any, ...]) -> None:
        for handle in handles:
            handle.remove()
        tangents = [given[slot] if slot >= 0 else watch.caught.get(i) for i, slot in enumerate(watch.slots)]
        end(Backward(tangents, *_by_input(node, watch.edges, made)))

    handles += [node.register_prehook(before), node.register_hook(after)]
    return True


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


def _slots(maker: Any, node: Any, known: set[Any]) -> Iterator[int]:
    todo, seen = [maker], set[Any]()
    while todo:
        each = todo.pop()
        if each is None or each in seen or each in known:
            continue
        seen.add(each)
        for inner, slot in each.next_functions:
            if inner is node:
                yield slot
            else:
                todo.append(inner)
