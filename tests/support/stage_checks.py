"""What must hold of the stages of any recorded training step, on any device."""

from __future__ import annotations

import re
from pathlib import Path

import kernelscope
from kernelscope.stages import StagedGraph, user_lines

_FILE = re.compile(r"# File: (.+):(\d+) in ")
_NODE = re.compile(r"^\s+(\w+)(?:: .*?)? = ")
_NOT_COMPUTED = ("view", "permute", "reshape", "expand", "getitem", "unsqueeze", "squeeze", "alias", "clone")


def places_of_nodes(text: str) -> dict[str, tuple[str, int] | None]:
    """Each node of a graph that torch printed, with the line that torch wrote above it."""
    found: dict[str, tuple[str, int] | None] = {}
    place: tuple[str, int] | None = None
    for line in text.splitlines():
        comment, node = _FILE.search(line), _NODE.match(line)
        if comment is not None:
            place = comment[1], int(comment[2])
        elif node is not None:
            found[node[1]] = place
        elif not line.strip():
            place = None
    return found


def inputs_of(text: str) -> set[str]:
    """The graph's inputs, from its signature."""
    signature = text.partition("def forward(self, ")[2].partition("):\n")[0]
    return set(re.findall(r"(\w+)(?=: )", signature))


def check_graph(graph: StagedGraph, program: Path) -> None:
    """Every launch leads to real nodes and real lines; every node is computed by some launch."""
    real = places_of_nodes(graph.stages["post_grad"].text)
    inputs = inputs_of(graph.stages["post_grad"].text)
    before = set(places_of_nodes(graph.stages["pre_grad"].text))
    assert graph.provenance, graph
    source = program.read_text().splitlines()
    for launch in graph.provenance:
        assert launch.nodes, launch.kernel
        lines = user_lines(launch)
        assert lines, launch.kernel
        own = [f for f in lines if Path(f.file) == program and source[f.line - 1].strip()]
        assert own, (launch.kernel, lines)
        for node in launch.nodes:
            assert node.name in real.keys() | inputs, (launch.kernel, node.name)
            assert set(node.pre_grad) <= before, node
            place = real.get(node.name)
            if place is not None and node.frames:
                assert place in {(f.file, f.line) for f in node.frames}, (node, place)
        assert any(node.pre_grad for node in launch.nodes), launch
    computed = {node.name for launch in graph.provenance for node in launch.nodes}
    left = {n for n in real if n not in computed and not n.startswith(_NOT_COMPUTED)}
    assert not left, left


def check_calls(run: kernelscope.Run, program: Path) -> None:
    """Every recorded call finds its launch."""
    calls = [c for c in run.calls if c.producer == "inductor"]
    assert calls
    for call in calls:
        found = call.provenance
        assert found is not None, call
        assert call.kernel_name == found.kernel
        assert call.origin is not None
        if Path(call.origin.file) == program:
            assert call.origin.line in {f.line for f in user_lines(found)}, (call, user_lines(found))
