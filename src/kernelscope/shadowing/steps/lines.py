"""Which line of the user's program a step of the compiler got wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule, Node

from kernelscope.events import Frame
from kernelscope.probes.origins import frames_of_trace, is_users
from kernelscope.shadowing.reference.node_kinds import results_of

from .traced_graphs import WithoutEffects


def frames_of(node: Any) -> tuple[Frame, ...]:
    """The user's lines that a node comes from, innermost first."""
    trace = getattr(node, "stack_trace", None)
    return tuple(f for f in frames_of_trace(trace) if is_users(f.file)) if trace else ()


class Located(WithoutEffects):
    """Tells which node is running, and None once it is over."""

    def __init__(self, graph: GraphModule, tell: Callable[[Node | None], None]) -> None:
        super().__init__(graph)
        self._tell = tell

    def run_node(self, n: Node) -> Any:
        self._tell(n)
        try:
            return super().run_node(n)
        finally:
            self._tell(None)


def frames_of_operator(graph: GraphModule, operator: str) -> tuple[Frame, ...]:
    """Of the first node that an operator was decomposed into."""
    nodes = (n for n in graph.graph.nodes if str(n.meta.get("original_aten")) == operator)
    return next(filter(None, map(frames_of, nodes)), ())


def frames_of_output(graph: GraphModule, output: str) -> tuple[Frame, ...]:
    return frames_of(_node_of(graph, output))


def frames_of_change(before: GraphModule, after: GraphModule, output: str) -> tuple[Frame, ...]:
    """Of the first node that a pass replaced, among those that this output needs.

    If it needs none of them, of the first one at all: it now writes in place to what the output needs.
    """
    left = {_text(node) for node in after.graph.nodes}
    end = _node_of(before, output)
    needed = _needed_by(end) if end is not None else set(before.graph.nodes)
    changed = [n for n in before.graph.nodes if n.op != "output" and _text(n) not in left]
    changed.sort(key=lambda node: node not in needed)
    return next(filter(None, map(frames_of, changed)), ())


def _node_of(graph: GraphModule, output: str) -> Node | None:
    word, _, number = output.partition(" ")
    results = results_of(graph)
    if word != "output" or not number.isdecimal() or int(number) >= len(results):
        return None
    found = results[int(number)]
    return found if isinstance(found, Node) else None


def _needed_by(end: Node) -> set[Node]:
    needed, todo = set[Node](), [end]
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo += node.all_input_nodes
    return needed


def _text(node: Node) -> str:
    return f"{node.name} {node.target} {node.args} {node.kwargs}"
