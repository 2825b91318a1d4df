"""Which scheduler nodes became which kernel: one box for each launch, and what flows between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelscope.stages import StagedGraph

Form = dict[str, Any]
_PART_OF_ITS_PRODUCER = "MultiOutput"  # one result of a kernel with several: nothing is launched for it


def fusion(
    graph: StagedGraph, operations: Mapping[Any, set[int]], launches: Sequence[set[int]]
) -> Form | None:
    """The boxes in the order of their launches, those without one at the end; None without a schedule.

    The scheduler's groups are not kernels: a C++ kernel may hold several of them.
    """
    dag = graph.part("dag")
    if dag is None or not dag.get("groups"):
        return None
    box_of = _boxes(graph, dag)
    nodes = {node["name"]: node for node in dag["nodes"]}
    members: dict[Any, list[str]] = {launch: [] for launch in range(len(launches))}
    for name in (name for group in dag["groups"] for name in group if name in nodes):
        members.setdefault(box_of[name], []).append(name)
    number = {box: at for at, box in enumerate(members)}
    edges = {
        (number[box_of[a]], number[box_of[b]])
        for a, b in dag["edges"]
        if a in box_of and b in box_of and box_of[a] != box_of[b]
    }
    return {
        "groups": [
            {
                "launch": box if isinstance(box, int) else None,
                "nodes": [
                    {"name": name, "type": str(nodes[name].get("type", "")),
                     "fx": list(nodes[name]["metadata"].get("fx", ()))}
                    for name in names
                ],
                "atoms": sorted(
                    launches[box] if isinstance(box, int)
                    else {atom for name in names for atom in operations.get(name, ())}
                ),
            }
            for box, names in members.items()
        ],
        "edges": sorted(map(list, edges)),
        "refusals": [[r.first, r.second, r.reason, r.times] for r in graph.refusals],
    }  # fmt: skip


def _boxes(graph: StagedGraph, dag: Form) -> dict[str, int | str]:
    """By node: its launch, or a name for the box of nodes that no launch computes."""
    launch_of: dict[str, int] = {}
    for launch, provenance in enumerate(graph.provenance):
        for buffer in provenance.buffers:
            launch_of.setdefault(buffer, launch)
    nodes = {node["name"]: node for node in dag["nodes"]}
    found: dict[str, int | str] = {}
    for group in dag["groups"]:
        own = {
            name: min(known)
            for name in group
            if name in nodes and (known := [launch_of[b] for b in nodes[name]["outputs"] if b in launch_of])
        }
        alone = min(own.values(), default=f"group {group[0]}" if group else "")
        found |= {name: own.get(name, alone) for name in group if name in nodes}
    before: dict[str, list[str]] = {}
    for a, b in dag["edges"]:
        before.setdefault(b, []).append(a)
    for name, node in nodes.items():
        producers = {found[a] for a in before.get(name, ()) if a in found}
        is_part = node.get("type") == _PART_OF_ITS_PRODUCER and name in found and len(producers) == 1
        if is_part and not isinstance(found[name], int):
            found[name] = producers.pop()
    return found
