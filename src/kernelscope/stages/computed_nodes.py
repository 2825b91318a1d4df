"""Which FX nodes a launch computes: Inductor also names nodes whose values the launch only reads."""

from __future__ import annotations

from collections.abc import Collection

from kernelscope.generated_code.printed_graph import FxText, read_fx

from .graphs import StagedGraph
from .records import FxOrigin, Provenance


def computed_nodes(graph: StagedGraph, launch: Provenance, read: Collection[str]) -> tuple[FxOrigin, ...]:
    """Nodes between the buffers that it reads and those that it writes.

    All that Inductor names where that is not known: a buffer without a node, a graph without its text.
    """
    held = graph.held
    outputs = [held[buffer] for buffer in launch.buffers if buffer in held]
    if not outputs or "post_grad" not in graph.stages:
        return launch.nodes
    text = read_fx(graph.stages["post_grad"].text)
    given = {text.view_of(held[buffer]) for buffer in read if buffer in held and buffer not in launch.buffers}
    wanted = _between(text, given, outputs)
    kept = tuple(node for node in launch.nodes if node.name in wanted or node.name not in text.lines)
    return kept or launch.nodes


def _between(text: FxText, given: set[str], outputs: list[str]) -> set[str]:
    wanted: set[str] = set()
    left = list(outputs)
    while left:
        name = left.pop()
        is_given = text.view_of(name) in given and name not in outputs
        if name in text.lines and name not in wanted and not is_given:
            wanted.add(name)
            left += text.lines[name].needs
    return wanted
