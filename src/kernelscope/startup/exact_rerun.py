"""A second run on a GPU that finds out what the first could not: it waits for each launch, or marks each.

`--stop-on` does not wait, so the first run has no inputs. A fault in a CUDA graph is one of a whole replay.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.crash import Crash, crash_in
from kernelscope.store.stored_run import load

from .recorded_child import watch

_SHORT = 600  # seconds: a program that took longer is not run again unasked

STOPPED = 3  # exit status of a program that a watch has ended, as values.script has it
LATE_HIT = "watch-late"  # kind of its finding, where the program went on for a while


def late_hits(path: Path) -> list[str]:
    """What a watch found without waiting for the GPU: the program went on for a while."""
    found = []
    for part in folder.parts(path):
        with contextlib.suppress(RunError):
            found += [f.message for f in load(part).findings if f.kind == LATE_HIT]
    return found


def rerun_exactly(command: list[str], path: Path, options: str, late: str, *, as_json: bool) -> int:
    """Run it again with --exact in its options, so that it stops right after the call that was found."""
    print("kernelscope: running again synchronously to save the inputs", file=sys.stderr)
    status = watch(command, path, options, as_json=as_json)
    if status != STOPPED:
        print(
            f"kernelscope: did not reproduce (exit status {status}); the first run reported:\n  {late}",
            file=sys.stderr,
        )
    return STOPPED


def fault_in_graph(path: Path) -> Crash | None:
    """The crash of a run, where it is known only that it happened in a replay of a CUDA graph."""
    with contextlib.suppress(RunError, OSError):
        crash = crash_in(path)
        return crash if crash is not None and crash.in_replay else None
    return None


def is_short(path: Path) -> bool:
    """Whether the recorded program took so little time that it can be run again unasked."""
    invocation = folder.read_invocation(path)
    return invocation is not None and invocation.ended_ns - invocation.started_ns < _SHORT * 1_000_000_000


def rerun_marked(command: list[str], path: Path, options: str, *, as_json: bool) -> int:
    """Run it again with --mark-graphs in its options, so that the launch which faults is known."""
    print("kernelscope: running again with --mark-graphs to name the kernel", file=sys.stderr)
    status = watch(command, path, options, as_json=as_json)
    if crash_in(path) is None:
        print(f"kernelscope: the fault did not occur again (exit status {status})", file=sys.stderr)
    return status
