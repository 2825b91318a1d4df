"""Copies of FX graphs that later passes do not change, with the graphs inside of them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node


def text_of(gm: GraphModule) -> str:
    """All that a pass can change, also in the bodies of branches and loops."""
    own = "\n".join(f"{n.name} {n.target} {n.args} {n.kwargs}" for n in gm.graph.nodes)
    return "\n".join([own, *(f"{name}: {text_of(inner)}" for name, inner in bodies_of(gm).items())])


def copied(gm: GraphModule) -> GraphModule:
    """A copy; tensors that the graph itself has are shared."""
    with torch.utils._python_dispatch._disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about its own way to copy a tree's shape
        made = GraphModule(gm, _copied_graph(gm.graph))
        for name, inner in bodies_of(gm).items():
            setattr(made, name, copied(inner))
        _open_ordered(made)
        return made


def _copied_graph(graph: Graph) -> Graph:
    """In an order that runs: a pass may put a node before one that it needs; Inductor sorts them later."""
    order = _sorted_nodes(graph)
    if order == list(graph.nodes):
        return copy.deepcopy(graph)
    made, copies = Graph(tracer_cls=graph._tracer_cls), dict[Node, Node]()
    for node in order:
        copies[node] = made.node_copy(node, copies.__getitem__)
    made.set_codegen(copy.deepcopy(graph._codegen))
    return made


def _sorted_nodes(graph: Graph) -> list[Node]:
    """Each node as early as its inputs allow, as Inductor's own `stable_topological_sort` orders them."""
    placed, waiting = dict[Node, None](), dict[Node, list[Node]]()
    pending = list(reversed(graph.nodes))
    while pending:
        node = pending.pop()
        missing = [each for each in node.all_input_nodes if each not in placed]
        if missing:
            waiting.setdefault(missing[-1], []).append(node)
        else:
            placed[node] = None
            pending += reversed(waiting.pop(node, []))
    return list(placed)


def without_ordering(gm: GraphModule) -> GraphModule:
    """The graph itself, unless Inductor has wrapped nodes of it only to keep them in order: then a copy."""
    return copied(gm) if any(_is_ordered(node) for node in gm.graph.nodes) else gm


def _is_ordered(node: Node) -> bool:
    """Inductor's `control_deps`: an operator as a graph of its own, after others that it does not read."""
    return node.op == "call_function" and getattr(node.target, "_name", "") == "control_deps"


def _open_ordered(gm: GraphModule) -> None:
    """Puts such an operator back in place, under its name. The nodes of a graph are in order anyway."""
    for node in [node for node in gm.graph.nodes if _is_ordered(node)]:
        inner = node.args[1]
        assert isinstance(inner, Node)
        body: GraphModule = getattr(gm, str(inner.target))
        *others, output = body.graph.nodes
        if not isinstance(output.args[0], Node):
            continue
        inputs = [n for n in others if n.op == "placeholder"]
        put: dict[Node, Any] = dict(zip(inputs, node.args[2:], strict=True))
        with gm.graph.inserting_before(node):
            for each in others[len(inputs) :]:
                put[each] = gm.graph.node_copy(each, put.__getitem__)
        made, name = put[output.args[0]], node.name
        made.meta = node.meta
        node.replace_all_uses_with(made)
        gm.graph.erase_node(node)
        made.name = name
        if not inner.users:
            gm.graph.erase_node(inner)


def bodies_of(gm: GraphModule) -> dict[str, GraphModule]:
    names = {str(n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module")}
    found = {name: getattr(gm, name, None) for name in sorted(names) if "." not in name}
    return {name: inner for name, inner in found.items() if isinstance(inner, GraphModule)}
