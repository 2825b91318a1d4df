"""A bug report as a folder: issue.md, and the scripts that it quotes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.model.call import KernelCall
from kernelscope.store.stored_run import StoredRun

from . import files
from .issue_text import Shown, findings_of, report
from .one_call import call_script
from .one_graph import graph_script


def write_issue(
    run: StoredRun, target: Path, *, call: int | None, graph: str | None, imports: list[str],
    reduced: Path | None,
) -> list[str]:  # fmt: skip
    """Write the report into a new folder, and return notes about what it lacks.

    It has a script of the given call and graph; without those, of the first call with a finding.
    """
    if target.exists():
        raise RunError(f"{target} already exists and is not overwritten; choose another with -o")
    result = None if reduced is None else _reduced(reduced)
    scripts = [call_script(run, call, imports)] if call is not None else []
    scripts += [graph_script(run, graph, imports)] if graph is not None else []
    notes: list[str] = []
    if not scripts and result is None and (call := _first_with_finding(run)) is not None:
        try:
            scripts = [call_script(run, call, imports)]
        except RunError as error:
            notes = [f"There is no script of call {call}: {error}"]
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"cannot create {target}: {error.strerror}") from None
    shown: list[Shown] = []
    if reduced is not None and result is not None:
        for name in ("reduced.py", "reduced.safetensors"):
            if (reduced / name).exists():
                (target / name).write_bytes((reduced / name).read_bytes())
        shown.append(_run(target / "reduced.py", result))
    shown += [_run(files.write(script, target), {}) for script in scripts]
    text = report(run, _call(run, call), shown, notes)
    (target / "issue.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    return notes


def _call(run: StoredRun, index: int | None) -> KernelCall | None:
    return None if index is None else run.select(first=index, limit=1)[0]


def _first_with_finding(run: StoredRun) -> int | None:
    return next((finding.call for finding in findings_of(run) if 0 <= finding.call < len(run)), None)


def _reduced(path: Path) -> dict[str, Any]:
    """The result of a search, which must have a script beside it."""
    try:
        result = dict(json.loads((path / "result.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise RunError(f"{path} was not written by `kernelscope reduce`: it has no result.json") from None
    if not (path / "reduced.py").is_file():
        raise RunError(f"{path} has no reduced script: {result.get('problem', 'reduced.py is missing')}")
    return result


def _run(path: Path, result: dict[str, Any]) -> Shown:
    """Run a script, and keep what it prints."""
    beside = path.with_suffix(".safetensors")
    names = [path.name, *([beside.name] if beside.exists() else [])]
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    printed = done.stdout if done.stdout and done.returncode in (0, 1, 2) else done.stdout + done.stderr
    return Shown(path.name, path.read_text(encoding="utf-8"), printed, done.returncode, names, result)
