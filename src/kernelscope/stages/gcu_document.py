"""What the document of a gcu graph has of its own. Needs no torch.

The backend writes the same document when it traces by itself (`CONDUCTOR_DEBUG=1`); in a run its large
parts are stages, and are put back here.
"""

from __future__ import annotations

from typing import Any

from .document import new_document
from .graphs import GCU, StagedGraph


def document(graph: StagedGraph, versions: dict[str, str]) -> dict[str, Any]:
    made = new_document("gcu", "", graph.direction) | (graph.part(GCU) or {})
    made["graph"]["name"] = graph.compilation.name or graph.name
    made["versions"] = versions | made["versions"]
    for part, stage in (("code", "choreo"), ("wrapper", "host_wrapper")):
        if made[part] is not None and stage in graph.stages:
            made[part]["text"] = graph.stages[stage].text
    for kernel in made["code"]["kernels"] if made["code"] is not None else ():
        nodes = [n for p in graph.provenance_of(kernel["name"]) for n in p.nodes]
        kernel["pre_grad"] = list(dict.fromkeys(name for n in nodes for name in n.pre_grad))
    return made
