"""Stages kept beside Inductor's cache, a JSON file per graph, for graphs that are loaded from it."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from kernelscope.stages.json_records import from_plain, to_plain
from kernelscope.stages.records import Compilation, Provenance, Record, Refusal, Stage, TimedConfig

from .compile_context import CompileContext

VERSION = 1
_KEY = re.compile(r"[\w.-]{8,200}")
_OF_EVERY_PROCESS = ("dynamo", "fx", "guards", "times")  # Dynamo does its work each time


def save(context: CompileContext, graph: Compilation) -> None:
    path = _path(graph.cache_key)
    if path is None:
        return
    frame = [r for r in context.records.get(graph.frame, ()) if _is_kept(r)]
    kept = {
        "version": VERSION,
        "dynamo": context.text_of(graph.frame, "dynamo"),
        "frame": [to_plain(r) for r in frame],
        "graph": [to_plain(r) for r in context.records.get(graph.id, ())],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(kept, file)
    os.replace(name, path)


def load(cache_key: str) -> tuple[str, list[Record], list[Record]] | None:
    """Dynamo's graph, what was kept of the frame, and of the graph; None when nothing was."""
    path = _path(cache_key)
    if path is None or not path.is_file():
        return None
    try:
        kept: Any = json.loads(path.read_text(encoding="utf-8"))
        if kept["version"] != VERSION:
            return None
        frame, graph = ([from_plain(r) for r in kept[part]] for part in ("frame", "graph"))
        return str(kept["dynamo"]), frame, graph
    except (ValueError, KeyError, TypeError, OSError):
        return None  # half a file is no file: the graph then shows what Inductor's cache has


def _path(cache_key: str) -> Path | None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    if not _KEY.fullmatch(cache_key):
        return None
    return Path(cache_dir()) / "kernelscope-stages" / f"{cache_key}.json"


def _is_kept(record: Record) -> bool:
    if isinstance(record, Stage):
        return record.name not in _OF_EVERY_PROCESS
    return isinstance(record, Provenance | Refusal | TimedConfig)
