"""`kernelscope run --stop-on` on a GPU: a second run that waits for each launch, to save the inputs."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.stored_run import load

from .recorded_child import watch

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
