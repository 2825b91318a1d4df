"""What a run is: where and how it was recorded, how it ended, what it holds, and what it lacks."""

from __future__ import annotations

import shlex
from typing import Any

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.crash import about as about_call
from kernelscope.store.flight.crash import crash_of
from kernelscope.store.flight.reader import is_recording
from kernelscope.store.run_db.codec import to_json
from kernelscope.store.stored_run import StoredRun

Form = dict[str, Any]
_FEW = 5000  # fingerprints that are looked at for statistics


def facts(run: StoredRun) -> Form:
    """All of it that does not need the calls."""
    info, notes = run.info, run.metadata
    calls, kernels, graphs = run.totals()
    invocation = _invocation(run)
    held, how = _held(run), state(run)
    is_beginning = how["kind"] == "recording" and not calls
    return {
        "name": run.path.name.removesuffix(folder.SUFFIX),
        "path": str(run.path),
        **{name: getattr(info, name) for name in ("uuid", "host", "pid", "rank", "world_size")},
        "started": info.realtime_ns / 1e9,
        "ended": _number(notes.get("ended_ns")),
        "begin_ns": info.monotonic_ns,
        "devices": list(info.devices),
        "versions": {str(k): str(v) for k, v in info.versions.items()},
        "settings": {str(k): _text(v) for k, v in info.settings.items()},
        "compiler_settings": {
            str(module): {str(k): _text(v) for k, v in settings.items()}
            for module, settings in run.compiler_settings.items()
        },
        "command": None if invocation is None else list(invocation.command),
        "totals": {"calls": calls, "kernels": kernels, "graphs": graphs},
        "state": how,
        "has": held,
        "missing": [] if is_beginning else missing(held, calls, _script(invocation)),
        "parts": [p.name for p in folder.parts(run.path) if p != run.path],
    }


def state(run: StoredRun) -> Form:
    """How the recording stands: closed, recording, stopped, crashed or not closed."""
    if run.stopped and not run.is_closed:
        return {"kind": "stopped", "text": f"the recording stopped before the program did: {run.stopped}"}
    if is_recording(run.path / folder.FLIGHT):
        return {"kind": "recording", "text": "the run is still being recorded"}
    try:
        crash = crash_of(run.path, _invocation(run))
    except RunError as error:
        return {"kind": "crashed", "text": f"the recording was not closed, and {error}"}
    if crash is not None:
        at = crash.executing[-1] if crash.executing else crash.last
        return {
            "kind": "crashed",
            "text": crash.text(),
            "call": None if at is None else about_call(at),
            "executing": bool(crash.executing),
        }
    return {"kind": "closed", "text": ""}


def missing(held: dict[str, bool], calls: int, script: str) -> list[Form]:
    """What the page could show and this run does not hold, with the command that records it."""
    if not calls:
        return [
            {
                "what": "calls",
                "why": "No kernel ran during the recording. Compiled code, Triton kernels and the gcu "
                "backend are recorded; eager operators only with --ops all.",
                "how": f"kernelscope run --ops all {script}",
            }
        ]
    known = (
        ("stages", "The work of the compiler was not recorded, so there is no pipeline.", "--stages"),
        ("hashes", "Hashes were not recorded, so producers and diffs are not available.", "--values hash"),
        ("stats", "Statistics were not recorded, so NaN values go unnoticed.", "--values stats"),
        ("tensors", "Tensors were not saved, so there are no histograms and heat maps.", "--values save"),
        ("times", "Times were not measured.", "--time"),
    )
    return [
        {"what": what, "why": why, "how": f"kernelscope run {option} {script}"}
        for what, why, option in known
        if not held[what] and not (what == "stats" and held["tensors"])
    ]


def _held(run: StoredRun) -> dict[str, bool]:
    return {
        "stages": bool(run.compiled),
        "hashes": run.has_hashes(),
        "stats": _any(run, f"(SELECT stats FROM fingerprints LIMIT {_FEW}) WHERE stats IS NOT NULL"),
        "tensors": _any(run, "tensors"),
        "times": _any(run, "calls WHERE duration_ns IS NOT NULL"),
    }


def _any(run: StoredRun, of: str) -> bool:
    return bool(run.rows(f"SELECT 1 FROM {of} LIMIT 1"))


def _invocation(run: StoredRun) -> folder.Invocation | None:
    """How its command ended; of a process that a run started, its run's."""
    try:
        return folder.read_invocation(run.path) or folder.read_invocation(run.path.parent)
    except RunError:
        return None


def _script(invocation: folder.Invocation | None) -> str:
    if invocation is None or not invocation.command:
        return "script.py"
    words = (
        invocation.command[1:]
        if "python" in invocation.command[0].rpartition("/")[2]
        else ("--", *invocation.command)
    )
    return shlex.join(words) or "script.py"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


def _number(value: Any) -> float | None:
    return value / 1e9 if isinstance(value, int) else None
