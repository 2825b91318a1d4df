"""A part of an FX graph: from one node back to those that are given."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from .in_place import InPlace
from .node_kinds import (
    has_no_elements,
    is_copy,
    is_given,
    is_index_of_one,
    is_symbolic,
    is_uninitialised,
    is_view,
    only_shapes,
    reshaped,
    value_of,
)

Walked = tuple[list[Node], list[Node], list[Node]]


def walk(
    outputs: Sequence[Node],
    stops: set[Node],
    overwritten: set[Node],
    writers: Collection[Node] = (),
    finished: Mapping[Node, Node] | None = None,
) -> Walked:
    """The nodes to evaluate in order, those that are given, and those that are neither.

    The value of a node that a user's kernel writes to is not what the node computes: it must be given.
    What `writers` write to is needed too; of those that are `finished` nothing else.
    """
    order: list[Node] = []
    leaves: dict[Node, None] = {}
    missing: list[Node] = []
    done: set[Node] = set()
    todo: list[tuple[Node, bool]] = [(output, False) for output in reversed(outputs)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            order.append(node)
            continue
        if node in done:
            continue
        done.add(node)
        if node in stops and (node not in outputs or node.op == "placeholder"):  # a copy of an input
            leaves[node] = None
        elif node.op == "get_attr" or is_symbolic(node):
            continue
        elif node.op == "placeholder" or is_given(node) or node in overwritten:
            if node in outputs or not has_no_elements(node):
                missing.append(node)
        else:
            todo.append((node, True))
            todo.extend((n, False) for n in _needed(node, writers, finished or {}))
    return order, list(leaves), missing


def walk_in_place(
    outputs: Sequence[Node], stops: set[Node], overwritten: set[Node], in_place: InPlace, line: int
) -> Walked:
    """The same for a graph with writes in the middle: those of the launch at this line are done again."""
    known = set(overwritten) | {b for b in in_place.writers if not _can_be_made(b, in_place, line)}
    writers = {writer for by in in_place.writers.values() for writer in by}
    finished = {writer: in_place.results[writer] for writer in in_place.finished_before(line)}
    wanted = list(outputs)
    while True:
        order, leaves, missing = walk(wanted, stops, known, writers, finished)
        more: list[Node] = []
        for node in (n for n in order if not is_view(n) and n not in finished):
            for base, version in in_place.needed_by(node):
                span = in_place.versions(base, line)
                if has_no_elements(base):
                    continue
                is_unclear = version > 0 and base in leaves and in_place.is_nowhere(base)  # written to or not
                if span is None or not span[0] <= version <= span[1] or is_unclear:
                    missing.append(base)
                else:
                    more += in_place.writers[base][span[0] : version]
        new = [node for node in dict.fromkeys(more) if node not in wanted]
        if missing or not new:
            return sorted(order, key=in_place.place.__getitem__), leaves, missing
        wanted += new


def _can_be_made(base: Node, in_place: InPlace, line: int) -> bool:
    """Memory that nothing was written to yet has no value that the launch would have to be given."""
    if in_place.is_made_at(base, line):
        return True
    span = in_place.versions(base, line)
    return is_uninitialised(base) and span is not None and span[0] == 0


def _needed(node: Node, writers: Collection[Node], finished: Mapping[Node, Node]) -> list[Node]:
    if node in finished:
        return [finished[node]]
    if is_index_of_one(node):
        return []
    if is_copy(node) and node not in writers:
        return [n for n in node.args[1:2] if isinstance(n, Node)]
    shapes = only_shapes(node)
    return [n for n in node.all_input_nodes if n not in shapes] if shapes else node.all_input_nodes


def stop_at(stops: dict[Node, str], node: Node, name: str) -> None:
    """This variable has the value of the node, and of those that only have another shape."""
    stops.setdefault(node, name)
    if is_copy(node) and isinstance(source := node.args[1], Node) and _same_kind(source, node):
        stops.setdefault(source, name)
    while (inner := reshaped(node)) is not None:
        stops.setdefault(inner, name)
        node = inner


def _same_kind(a: Node, b: Node) -> bool:
    x, y = value_of(a), value_of(b)
    return isinstance(x, torch.Tensor) and x.dtype == y.dtype and tuple(x.shape) == tuple(y.shape)


def shaped(tensor: torch.Tensor, node: Node, symbols: Mapping[str, Any]) -> torch.Tensor:
    """A buffer's contents in the shape of its node.

    It stays as it is where an operator makes another size than torch foretold, as `_embedding_bag` does.
    """
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return tensor
    try:
        shape = concrete_shape(value, symbols)
    except KeyError:  # a size that is known only once the kernel has run
        return tensor
    if tuple(tensor.shape) == shape or tensor.numel() != math.prod(shape):
        return tensor
    return tensor.reshape(shape)


def is_value_of(node: Node, tensor: torch.Tensor, symbols: Mapping[str, Any]) -> bool:
    """Whether a buffer has as many elements as its node, of the same kind."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or value.dtype != tensor.dtype:
        return False
    try:
        return math.prod(concrete_shape(value, symbols)) == tensor.numel()
    except KeyError:  # a size that is known only once the kernel has run
        return False


def concrete_shape(value: torch.Tensor, symbols: Mapping[str, Any]) -> tuple[int, ...]:
    return concrete_sizes(value.shape, symbols)


def concrete_sizes(sizes: Iterable[Any], symbols: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(_size(n, symbols) for n in sizes)


def _size(size: Any, symbols: Mapping[str, Any]) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.xreplace({s: symbols[s.name] for s in expression.free_symbols}))
