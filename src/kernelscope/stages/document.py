"""The document of one graph: every stage, in one JSON file. `docs/stages.schema.json` is its schema.

A producer fills the parts that it has; an empty part means that the graph did not get so far, or has none.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

VERSION = 1
SCHEMA = "kernelscope.stages"


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
