"""`kernelscope ranks` on a run that is still being recorded, in a process beside it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelscope.config import unrecorded_environment

_MOST_CALLS = 1_000_000  # of all ranks: more take minutes, on a machine that has other work
_PACKAGES = Path(__file__).parents[2]


def compare_written(parts: Sequence[str], calls: int, seconds: float) -> str:
    """What `kernelscope ranks` says of these parts of one run, or why it was not asked."""
    roots = {str(Path(part).parent) for part in parts if part}
    if len(roots) != 1 or not all(parts):
        return "there is nothing to compare: the ranks do not record into one folder"
    [root] = roots
    command = f"kernelscope ranks {shlex.quote(root)}"
    if not Path(root).is_dir():
        return f"{root} is not on this machine; where it is, run: {command}"
    if calls > _MOST_CALLS:
        return f"{calls:,} calls take long to compare; run: {command}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kernelscope", "ranks", root],
            env=unrecorded_environment(_PACKAGES),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it could not be compared ({error}); run: {command}"
    return f"$ {command}\n{done.stdout}{done.stderr}"
