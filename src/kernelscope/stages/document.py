"""The document of one graph: every stage, in one JSON file. `docs/stages.schema.json` is its schema.

A producer fills the parts that it has; an empty part means that the graph did not get so far, or has none.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import inductor_parts
from .graphs import GCU, StagedGraph
from .records import Refusal, TimedConfig

VERSION = 1
SCHEMA = "kernelscope.stages"
_NOT_TEXT = ("fx", "dag", "times", GCU)  # stages that are parts of a document


def new_document(producer: str, name: str, direction: str) -> dict[str, Any]:
    """An empty document."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "producer": producer,
        "graph": {"name": name, "direction": direction, "compile_id": ""},
        "versions": {},
        "fx": None,
        "dag": None,
        "code": None,
        "wrapper": None,
        "passes": [],
        "fallbacks": [],
        "files": {},
        "error": None,
    }


def document(graph: StagedGraph, versions: dict[str, str]) -> dict[str, Any]:
    """All stages of one recorded graph."""
    made = new_document(graph.producer, "", graph.direction)
    made |= _gcu_parts(graph) if graph.producer == "gcu" else inductor_parts.parts(graph)
    made["versions"] = versions | made["versions"]
    made["graph"] |= {
        "name": graph.compilation.name or graph.name,
        "compile_id": graph.compilation.compile_id,
    }
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
        kind, _, message = failure.reason.partition(": ")
        text = message or failure.reason
        made["error"] = {"stage": failure.stage, "type": kind, "message": text, "source": failure.source}
    return made


def _gcu_parts(graph: StagedGraph) -> dict[str, Any]:
    """As the backend writes them when it traces by itself (`CONDUCTOR_DEBUG=1`); large texts are stages."""
    made = graph.part(GCU) or {}
    for part, stage in (("code", "choreo"), ("wrapper", "host_wrapper")):
        if made.get(part) is not None and stage in graph.stages:
            made[part]["text"] = graph.stages[stage].text
    for kernel in made["code"]["kernels"] if made.get("code") is not None else ():
        nodes = [n for p in graph.provenance_of(kernel["name"]) for n in p.nodes]
        kernel["pre_grad"] = list(dict.fromkeys(name for n in nodes for name in n.pre_grad))
    return made


def _form(record: Refusal | TimedConfig) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if name != "compilation"}


def write(document: dict[str, Any], path: Path, indent: int) -> None:
    """Write the file whole or not at all."""
    text = json.dumps(document, indent=indent or None, ensure_ascii=False) + "\n"
    descriptor, name = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
