"""Graphs that an operator is given, as functions: score_mod of flex_attention, the branches of cond."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from .node_kinds import aten, prims
from .small_errors.rounding import WIDE

_CAST, _COPY = prims.convert_element_type.default, aten._to_copy.default
_WIDE: WeakKeyDictionary[GraphModule, GraphModule] = WeakKeyDictionary()
_BATCHED: WeakKeyDictionary[GraphModule, GraphModule] = WeakKeyDictionary()


def has_subgraphs(args: Any) -> bool:
    return any(isinstance(part, GraphModule) for part in tree_leaves(args))


def with_wide_subgraphs(args: Any) -> Any:
    """The same arguments, with graphs that do not cast to a narrower float."""
    return tree_map(lambda part: _widened(part) if isinstance(part, GraphModule) else part, args)


def with_batched_graphs(args: Any) -> Any:
    """The same arguments, with graphs that run on whole tensors under `vmap`.

    It has no rule for casts of `prims`, and calls them for each element: half a million times for two heads
    of 512 queries and keys.
    """
    return tree_map(lambda part: _batched(part) if isinstance(part, GraphModule) else part, args)


def nodes_of_pattern(
    replaced: tuple[Graph, list[int]], args: Any, kwargs: Any
) -> tuple[list[Node], dict[Node, Any], Any]:
    """The nodes that a pattern of Inductor's was found in, what they are given, and the one it stands for."""
    graph, places = replaced
    nodes: list[Node] = list(graph.nodes)
    flat = tree_leaves((args, kwargs))
    inputs = [node for node in nodes if node.op == "placeholder"]
    given = dict(zip(inputs, [flat[i] for i in places], strict=True))
    return [node for node in nodes if node.op == "call_function"], given, nodes[-1].args[0]


def _widened(module: GraphModule) -> GraphModule:
    found = _WIDE.get(module)
    if found is None:
        found = _WIDE[module] = copy.deepcopy(module)
        for part in found.modules():
            _widen_tensors(part)
            if isinstance(part, GraphModule):
                _widen_casts(part)
    return found


def _batched(module: GraphModule) -> GraphModule:
    found = _BATCHED.get(module)
    if found is None:
        found = _BATCHED[module] = copy.deepcopy(module)
        for part in found.modules():
            if isinstance(part, GraphModule):
                for node in part.graph.find_nodes(op="call_function", target=_CAST):
                    node.target, node.args, node.kwargs = _COPY, node.args[:1], {"dtype": node.args[1]}
                part.recompile()
    return found


def _widen_casts(module: GraphModule) -> None:
    for node in module.graph.nodes:
        node.args, node.kwargs = tree_map(wide_dtype, (node.args, node.kwargs))
    module.recompile()


def _widen_tensors(module: torch.nn.Module) -> None:
    for name, value in [*vars(module).items(), *module.named_buffers(recurse=False)]:
        if isinstance(value, torch.Tensor) and value.dtype in WIDE:
            setattr(module, name, value.to(WIDE[value.dtype]))


def wide_dtype(part: Any) -> Any:
    return WIDE.get(part, part) if isinstance(part, torch.dtype) else part
