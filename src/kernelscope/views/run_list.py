"""The runs in a folder: how large each is, and how it ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.crash import is_running
from kernelscope.store.flight.reader import read_status
from kernelscope.store.safety.regular_files import refuse_other_kinds
from kernelscope.store.stored_run import load
from kernelscope.text.amounts import byte_size

from .terminal import room, table


def run_lines(runs: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A table of summaries."""
    return table(
        ["run", "calls", "size", "when", "ended", "command"], map(_row, runs), right=(1, 2), whole=(0, 3)
    )


def summary(path: Path) -> dict[str, Any]:
    """What is known of a run without reading all of it; `error` if it cannot be read."""
    form: dict[str, Any] = {
        "path": str(path), "calls": None, "bytes": folder.size(path), "started": path.stat().st_mtime,
        "status": None, "closed": None, "running": False, "command": None, "parts": [], "error": None,
    }  # fmt: skip
    try:
        invocation = folder.read_invocation(path)
        if invocation is not None:
            form |= {
                "status": invocation.status,
                "command": list(invocation.command),
                "started": invocation.started_ns / 1e9,
            }
        parts = folder.parts(path)
        if not parts:
            refuse_other_kinds(path / folder.DATABASE)
        form["parts"] = [folder.part_name(path, part) for part in parts]
        form |= {"calls": 0, "closed": True, "running": is_running(path)}
        for part in parts:
            run = load(part)
            form["calls"] += len(run)
            form["closed"] &= run.is_closed
            run.close()
    except RunError as error:
        form["error"] = str(error)
        found = [s for part in folder.parts(path) if (s := read_status(part / folder.FLIGHT)) is not None]
        form["calls"] = sum(status[0] for status in found) if found else None
    return form


def _row(form: dict[str, Any]) -> tuple[Any, ...]:
    if form["error"]:
        ended = "unreadable"
    elif form["running"]:
        ended = "running"
    elif form["status"] is not None:
        ended = f"status {form['status']}" if form["status"] >= 0 else f"signal {-form['status']}"
    elif form["parts"]:
        doubt = " or running" if form["running"] is None else ""
        ended = "" if form["closed"] else f"not closed{doubt}"
    else:
        ended = "nothing recorded"
    calls = "" if form["calls"] is None else f"{form['calls']:,}"
    started = time.localtime(form["started"])
    when = time.strftime("%Y-%m-%d %H:%M:%S", started)
    if room():  # as `ls -l` has it
        is_recent = started.tm_year == time.localtime().tm_year
        when = time.strftime("%m-%d %H:%M" if is_recent else "%Y-%m-%d", started)
    command = shlex.join(form["command"] or [])
    return form["path"], calls, byte_size(form["bytes"]), when, ended, command[:60]
