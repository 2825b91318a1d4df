"""`kernelscope ls`: the runs here."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.crash import is_running
from kernelscope.store.flight.reader import read_status
from kernelscope.store.stored_run import load
from kernelscope.views import plain
from kernelscope.views.terminal import byte_size, table

EPILOG = """\
examples:
  kernelscope ls                 newest first
  kernelscope ls ../other        of another folder
  kernelscope ls --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "ls",
        help="the runs here",
        description="List the runs in a folder and its kscope-runs, newest first.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", default=".", help="where to look; default: here")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/cli.md has the keys)")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    where = Path(args.folder)
    if not where.is_dir():
        raise RunError(f"{where} is not a folder")
    runs = [about(path) for path in folder.runs_in(where)]
    if args.json:
        plain.dump({"runs": runs})
    elif not runs:
        print(f"no runs in {where}; make one: kernelscope run script.py")
    else:
        head = ["run", "calls", "size", "when", "ended", "command"]
        for line in table(head, map(_row, runs), right=(1, 2)):
            print(line)
    return 0


def about(path: Path) -> dict[str, Any]:
    """What there is to say of a run without reading it whole; `error` where it cannot be read."""
    form: dict[str, Any] = {
        "path": str(path), "calls": None, "bytes": folder.size(path), "started": path.stat().st_mtime,
        "status": None, "closed": None, "running": False, "command": None, "parts": [], "error": None,
    }  # fmt: skip
    try:
        story = folder.read_story(path)
        if story is not None:
            form |= {
                "status": story.status,
                "command": list(story.command),
                "started": story.started_ns / 1e9,
            }
        parts = folder.parts(path)
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
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(form["started"]))
    command = shlex.join(form["command"] or [])
    return form["path"], calls, byte_size(form["bytes"]), when, ended, command[:60]
