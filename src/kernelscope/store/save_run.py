"""Writes a whole run to a new folder."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError, reason
from kernelscope.model.run import Run
from kernelscope.store.run_db.row_writer import LOG_SHIFT, Database

from . import folder
from .file_systems import network_of


def save_run(run: Run, path: str | os.PathLike[str], *, signs: bool = True) -> Path:
    """`signs`: it was made here, so that what it holds may be executed without asking."""
    target = folder.create(folder.named(os.fspath(path)))
    calls = [replace(call, parent=run.position_of(call.parent)) for call in run.records_of_calls]
    try:
        database = Database(target / folder.DATABASE, run.info, log=not network_of(target), signs=signs)
        with database as db:
            db.graph_calls([replace(g, parent=run.position_of(g.parent)) for g in run.graph_calls.values()])
            db.calls(calls)
            used: dict[int, tuple[Any, int]] = {}
            for call in calls:
                for slot in chain(*((slots or {}).values() for slots in (call.pre, call.post, call.poison))):
                    log = slot >> LOG_SHIFT
                    used[log] = call.fingerprinter, max(used.get(log, (None, 0))[1], slot + 1)
            for log, (fingerprinter, end) in used.items():
                db.fingerprints(fingerprinter, log, range(log << LOG_SHIFT, end))
            db.marks(run.marks)
            db.findings(run.noted_findings())
            db.compiled(run.compiled)
            if run.compiler_settings:
                db.note("compiler_settings", run.compiler_settings)
        database.close()
    except (OSError, sqlite3.Error) as error:
        raise RunError(f"{target} cannot hold a run: {reason(error)}") from None
    return target
