"""Processes that were started, and all that those have started: waited for, and ended together."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


def has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it does within that time; known at once when it does."""
    try:
        handle = os.pidfd_open(child.pid)
    except (OSError, AttributeError):  # ended already, or a system without them
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        return child.returncode is not None
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return child.poll() is not None


def end_tree(child: subprocess.Popen[bytes]) -> None:
    """Kill it, and all that it has started: a compiler that hangs would hang on."""
    if child.poll() is None:
        _end({child.pid})
    child.wait()


def end_children() -> None:
    """Of this process, and theirs."""
    _end(_children_of({os.getpid()}))


def _end(new: set[int]) -> None:
    found: set[int] = set()
    while new:  # what is stopped starts nothing more
        found |= new
        for pid in new:
            _send(pid, signal.SIGSTOP)
        new = _children_of(found) - found
    for pid in found:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _children_of(pids: set[int]) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # ended meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent in pids:
                found.add(int(path.parent.name))
    return found
