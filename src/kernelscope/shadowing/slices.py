"""A part of an FX graph: from one node back to those that are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from .nodes import is_copy, is_given, is_symbolic, is_uninitialised, reshaped, value_of


def walk(output: Node, stops: set[Node], overwritten: set[Node]) -> tuple[list[Node], list[Node], list[Node]]:
    """The nodes to evaluate in order, those that are given, and those that are neither.

    The value of a node that a user's kernel writes to is not what the node says: it must be given.
    """
    order: list[Node] = []
    leaves: dict[Node, None] = {}
    missing: list[Node] = []
    done: set[Node] = set()
    todo: list[tuple[Node, bool]] = [(output, False)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            order.append(node)
            continue
        if node in done:
            continue
        done.add(node)
        if node in stops and (node is not output or node.op == "placeholder"):  # a copy of an input
            leaves[node] = None
        elif node.op == "get_attr" or is_symbolic(node):
            continue
        elif node.op == "placeholder" or is_given(node) or is_uninitialised(node) or node in overwritten:
            missing.append(node)
        else:
            todo.append((node, True))
            todo.extend((n, False) for n in _needed(node))
    return order, list(leaves), missing


def _needed(node: Node) -> list[Node]:
    if is_copy(node):
        return [n for n in node.args[1:2] if isinstance(n, Node)]
    return node.all_input_nodes


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
    """A buffer's contents in the shape of its node."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return tensor
    try:
        shape = concrete_shape(value, symbols)
    except KeyError:  # a size that is known only once the kernel has run
        return tensor
    return tensor if tuple(tensor.shape) == shape else tensor.reshape(shape)


def concrete_shape(value: torch.Tensor, symbols: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(_size(n, symbols) for n in value.shape)


def _size(size: Any, symbols: Mapping[str, Any]) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.xreplace({s: symbols[s.name] for s in expression.free_symbols}))
