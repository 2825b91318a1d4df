"""A bug report as a folder: issue.md, and the scripts that it quotes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.model.call import KernelCall
from kernelscope.private_files import make_folder, write_bytes, write_text
from kernelscope.store import folder
from kernelscope.store.safety.origin import is_signed, refuse_untrusted
from kernelscope.store.safety.regular_files import is_regular, read_regular
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.markdown import in_line
from kernelscope.text.visible import one_line

from . import files
from .issue_text import Shown, findings_of, report
from .one_call import call_script
from .one_graph import graph_script

NOT_REPRODUCED = (
    "The reduced script did not reproduce with stock torch: something that the program imports "
    "may change the compiler."
)
_MOST_LINES = 200  # of a user's script that is quoted as it is
_MOST_BYTES, _MOST_RESULT = 1 << 32, 1 << 24  # of a reduced script with its tensors; of result.json


def write_issue(
    run: StoredRun, target: Path, *, call: int | None, graph: str | None, imports: list[str],
    reduced: Path | None, trust: bool = False, runs: bool = True, facts: Sequence[str] = (),
    program: Path | None = None,
) -> list[str]:  # fmt: skip
    """Write the report into a new folder, and return notes about what it lacks.

    It has a script of the given call and graph; without those, of the first call with a finding. Scripts of
    a run that was made by somebody else are run only with `trust`. `facts` is what is known besides, the most
    important line first; `program` is quoted if there is no smaller script.
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
            notes = [f"There is no script of call {call}: {in_line(error)}"]
    if runs and not trust:
        if reduced is not None and result is not None:
            refuse_untrusted(reduced, _why_not_own(reduced, result), f"  python {reduced / 'reduced.py'}")
        if scripts:
            refuse_untrusted(run.path, run.why_not_made_here(), code_of(run, call, graph))
    try:
        make_folder(target)
    except OSError as error:
        raise RunError(f"cannot create {target}: {error.strerror}") from None
    shown: list[Shown] = []
    if reduced is not None and result is not None:
        for name in ("reduced.py", "reduced.safetensors"):
            if (reduced / name).exists():
                write_bytes(target / name, read_regular(reduced / name, _MOST_BYTES))
        shown.append(_run(target / "reduced.py", result, runs=runs))
        notes += [NOT_REPRODUCED] if shown[0].did_not_reproduce else []
    shown += [_run(files.write(script, target), {}, runs=runs) for script in scripts]
    if (
        all(each.did_not_reproduce for each in shown)
        and program is not None
        and (quoted := _quoted(program, target)) is not None
    ):
        shown.append(quoted)
    text = report(run, _call(run, call), shown, notes, facts)
    write_text(target / "issue.md", text, errors="backslashreplace")
    return notes if shown or findings_of(run) else [*notes, *what_would_tell_more(run)]


def _quoted(program: Path, target: Path) -> Shown | None:
    """The user's own script, if it is short."""
    try:
        text = program.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    if text.count("\n") > _MOST_LINES:
        return None
    write_text(target / program.name, text)
    return Shown(program.name, text, files=[program.name])


def what_would_tell_more(run: StoredRun) -> list[str]:
    """The commands that find what a plain recording cannot show."""
    invocation = folder.read_invocation(run.path)
    words = list(invocation.command) if invocation is not None else []
    if words[:1] == [sys.executable]:
        words = words[1:]
    program = shlex.join(words) or "your_script.py"
    return [
        f"the run shows no wrong kernel; kernelscope shadow {program} compares each kernel with eager",
        f"for a script in the report: kernelscope reduce {program}, then kernelscope issue --reduced DIR",
    ]


def _call(run: StoredRun, index: int | None) -> KernelCall | None:
    return None if index is None else run.select(first=index, limit=1)[0]


def _first_with_finding(run: StoredRun) -> int | None:
    return next((finding.call for finding in findings_of(run) if 0 <= finding.call < len(run)), None)


def _reduced(path: Path) -> dict[str, Any]:
    """The result of a search, which must have a script beside it."""
    try:
        result = dict(json.loads(read_regular(path / "result.json", _MOST_RESULT)))
    except (OSError, ValueError, TypeError, RecursionError):
        raise RunError(f"{path} was not written by `kernelscope reduce`: it has no result.json") from None
    if not is_regular(path / "reduced.py"):
        raise RunError(f"{path} has no reduced script: {result.get('problem', 'reduced.py is missing')}")
    return result


def _why_not_own(path: Path, result: dict[str, Any]) -> str:
    text = read_regular(path / "reduced.py", _MOST_BYTES).decode("utf-8", "surrogateescape")
    return "" if is_signed(text, result.get("signature")) else "reduced.py is not signed by you"


def code_of(run: StoredRun, call: int | None, graph: str | None) -> str:
    """What a script of a call or a graph executes, in words."""
    path = shlex.quote(str(run.path))
    if call is None:
        shown = f"kernelscope stages {path} --graph {shlex.quote(str(graph))}"
        return f"  the recorded code of graph {graph}; `{shown}` shows it"
    kernel = run.select(first=call, limit=1)[0]
    kept = f"{len(kernel.source):,} characters of code" if kernel.source else "an operator of torch"
    return (
        f"  call {call}: {one_line(kernel.kernel_name)} [{one_line(kernel.kind)}], {kept}, and lines of the "
        f"code around it; `kernelscope show {path} --call {call} --source` shows it"
    )


def _run(path: Path, result: dict[str, Any], *, runs: bool) -> Shown:
    """Run a script, and keep what it prints."""
    beside = path.with_suffix(".safetensors")
    names = [path.name, *([beside.name] if beside.exists() else [])]
    if not runs:
        return Shown(path.name, path.read_text(encoding="utf-8"), "", None, names, result)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    printed = done.stdout if done.stdout and done.returncode in (0, 1, 2) else done.stdout + done.stderr
    return Shown(path.name, path.read_text(encoding="utf-8"), printed, done.returncode, names, result)
