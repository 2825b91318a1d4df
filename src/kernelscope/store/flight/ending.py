"""How a recorded program ended, whatever the way."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import Finding
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.process_ends import how_it_ended

from .crash import Crash, crash_in, describe, is_running

WATCH = ("watch", "watch-late")  # kinds of findings of --stop-on
_INTERRUPTED = "KeyboardInterrupt"


@dataclass(frozen=True, slots=True)
class Ending:
    """`text` is the whole story; the rest is what it is made of."""

    headline: str
    kind: str  # "crash", "running", "lost", "stopped", "exception", "interrupted", "status", "normal", …
    text: str
    status: int | None = None
    exception: str = ""
    crash: Crash | None = None
    hit: Finding | None = None

    def as_json(self) -> dict[str, Any]:
        call = self.hit.call if self.hit is not None and self.hit.call >= 0 else None
        return {
            "kind": self.kind, "how": self.headline, "status": self.status,
            "exception": self.exception or None, "call": call,
        }  # fmt: skip


def ending_of(path: Path) -> Ending:
    """Of the run as a whole: a crash of any process, or else how its first process ended."""
    invocation = folder.read_invocation(path)
    status = None if invocation is None else invocation.status
    crash = crash_in(path)
    if crash is not None:
        text = crash.text()
        return Ending(text.splitlines()[0], "crash", text, status, crash.exception, crash)
    runs = [StoredRun(part) for part in folder.parts(path)]
    exception, where = _exception(runs)
    if is_running(path):
        return _told("the program is still running", "running", runs, status)
    lost = next((run.stopped for run in runs if not run.is_closed and run.stopped), "")
    if lost:
        return _told(f"the recording stopped before the program did: {lost}", "lost", runs, status)
    hit = next((f for run in runs for f in run.noted_findings() if f.kind in WATCH), None)
    if hit is not None and (status or status is None):
        headline = "the program was stopped by --stop-on"
        return Ending(headline, "stopped", f"{headline}\n  {hit}", status, exception, hit=hit)
    if exception.startswith(_INTERRUPTED) or (status == -signal.SIGINT and not exception):
        at = f" at {where}" if where else ""
        return _told(f"the program was interrupted with Ctrl-C{at}", "interrupted", runs, status, exception)
    if exception:
        at = f" at {where}" if where else ""
        first = exception.splitlines()[0]
        of_block = any(run.metadata.get("exception_ended") == "block" for run in runs)
        what = "recorded block" if of_block else "program"
        return _told(f"the {what} ended with an exception{at}: {first}", "exception", runs, status, exception)
    stop_at = next((run.info.settings.get("stop_at") for run in runs), None)
    if isinstance(stop_at, int) and len(runs[0]) > stop_at and not status:
        return _told(f"the program was stopped after call {stop_at} (--stop-at)", "stopped", runs, status)
    if status:
        return _told(f"the program {how_it_ended(status)}", "status", runs, status)
    if status is None:
        said = "the program finished normally (its exit status was not recorded)"
        return _told(said, "unknown", runs, status)
    return _told("the program finished normally", "normal", runs, status)


def _told(headline: str, kind: str, runs: list[StoredRun], status: int | None, exception: str = "") -> Ending:
    lines = [headline, *(f"  {line}" for line in exception.splitlines()[1:20])]
    if kind not in ("normal", "running", "unknown") and runs:
        lines += _last_call(runs[0])
    return Ending(headline, kind, "\n".join(lines), status, exception)


def _last_call(run: StoredRun) -> list[str]:
    count = len(run)
    if not count:
        return ["  no kernel had been launched"]
    found = run.select(first=count - 1, limit=1)
    if not found:
        return []
    call = found[0]
    last = f"  all {count:,} recorded calls had completed; the last was {call.index}:"
    if count == 1:
        last = "  the one recorded call had completed:"
    return [last, f"    {describe(call)[0]}"]


def _exception(runs: list[StoredRun]) -> tuple[str, str]:
    for run in runs:
        found = run.metadata.get("exception", "")
        if not isinstance(found, str):
            raise RunError(f"{run.path} is damaged: its exception is not text")
        if found:
            return found, str(run.metadata.get("exception_at", ""))
    return "", ""
