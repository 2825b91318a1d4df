"""Whether a reduced script fails in a process of its own: the search ran in that of the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_DOES_NOT_FAIL = (0, 2)  # 2: a script of ours that could not tell


def reproduces_alone(script: Path, timeout: float) -> bool | None:
    """None, if it did not finish within the timeout."""
    words = [sys.executable, str(script)]
    try:
        done = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode not in _DOES_NOT_FAIL
