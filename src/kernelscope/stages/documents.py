"""The document that the schema describes and the four sections are printed from. Needs no torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from . import gcu_document, inductor_document
from .graphs import GCU, StagedGraph
from .records import Candidate, Incident, Refusal

_NOT_TEXT = ("fx", "dag", "times", GCU)  # stages that are parts of a document


def document(graph: StagedGraph, versions: dict[str, str]) -> dict[str, Any]:
    """All stages of one graph; a part that is not there is None, as in a compilation that failed."""
    if graph.producer == "gcu":
        made = gcu_document.document(graph, versions)
    else:
        made = inductor_document.document(graph, versions)
    made["graph"]["compile_id"] = graph.compilation.compile_id
    made["made"] = graph.made
    made["fx"], made["dag"] = graph.part("fx"), graph.part("dag")
    made["passes"] = [
        {"name": name.removeprefix("pass "), "graph": stage.text}
        for name, stage in graph.stages.items()
        if stage.language == "diff"
    ]
    made["stages"] = {
        name: {"language": s.language, "text": s.text}
        for name, s in graph.stages.items()
        if name not in _NOT_TEXT and s.language != "diff"
    }
    made["refusals"] = [_form(r) for r in graph.refusals]
    made["candidates"] = [_form(c) for c in graph.candidates]
    made["times"] = graph.phases
    failure = next((i for i in graph.incidents if i.kind == "failure"), None)
    if failure is not None:
        made["error"] = _error(failure)
    return made


def _form(record: Refusal | Candidate) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if name != "compilation"}


def _error(failure: Incident) -> dict[str, str]:
    kind, _, message = failure.reason.partition(": ")
    said = message or failure.reason
    return {"stage": failure.stage, "type": kind, "message": said, "source": failure.source}
