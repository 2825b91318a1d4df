"""What the compiler did as rows of run.db, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from kernelscope.stages.json_records import frames_of, frames_to_plain, nodes_of, nodes_to_plain
from kernelscope.stages.records import Compilation, Incident, Provenance, Record, Refusal, Stage, TimedConfig
from kernelscope.store.run_db.codec import Row
from kernelscope.text.frames import foreign
from kernelscope.text.visible import unbroken

_TABLES: dict[type, str] = {
    Compilation: "compilations",
    Stage: "stages",
    Provenance: "provenance",
    Refusal: "refusals",
    TimedConfig: "candidates",
    Incident: "incidents",
}


def rows_of(records: Sequence[Record]) -> Iterator[tuple[str, str, list[Row]]]:
    """Table, its columns, rows. A later record of a compilation replaces an earlier one."""
    for kind, table in _TABLES.items():
        names = [f.name for f in fields(kind)]
        found = [r for r in records if type(r) is kind]
        if kind is Compilation:
            found = list({r.id: r for r in found if isinstance(r, Compilation)}.values())
        yield table, ", ".join(names), [tuple(_cell(n, getattr(r, n)) for n in names) for r in found]


def read(table: Callable[[str, str], list[Row]], *, is_foreign: bool) -> list[Record]:
    """All records of a run, each kind in the order in which it was written.

    `is_foreign`: it was made by somebody else, and the files that it names are not to be opened.
    """
    found: list[Record] = []
    for kind, name in _TABLES.items():
        names = [f.name for f in fields(kind)]
        for row in table(name, "ORDER BY id"):
            values = row[len(row) - len(names) :]  # all but compilations have an id before their own columns
            record = kind(*(_value(n, v) for n, v in zip(names, values, strict=True)))
            found.append(_foreign(record) if is_foreign else record)
    return found


def _foreign(record: Any) -> Any:
    if isinstance(record, Compilation | Incident):
        return replace(record, origin=foreign(record.origin))
    if isinstance(record, Provenance):
        return replace(record, nodes=tuple(replace(n, frames=foreign(n.frames)) for n in record.nodes))
    return record


def _cell(name: str, value: Any) -> Any:
    if name == "origin":
        return json.dumps(frames_to_plain(value))
    if name == "nodes":
        return json.dumps(nodes_to_plain(value))
    if name == "buffers":
        return json.dumps(value)
    return value if not isinstance(value, str) else value.encode("utf-8", "replace").decode()


def _value(name: str, cell: Any) -> Any:
    if name == "origin":
        return frames_of(json.loads(cell))
    if name == "nodes":
        return nodes_of(json.loads(cell))
    if name == "buffers":
        return tuple(unbroken(str(b)) for b in json.loads(cell))
    return bool(cell) if name == "chosen" else cell
