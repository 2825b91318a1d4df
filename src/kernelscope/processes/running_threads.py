"""Which threads this process has besides the current one. Needs no torch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
_EXITING = 0x4  # PF_EXITING: the kernel is ending the thread, and it runs no more of the program's code


def other_threads(seconds: float = 1.0) -> list[str] | None:
    """Their names, those that end within `seconds` left out; None where the system does not tell.

    Python joins a thread shortly before the system has ended it. One that Python still runs is not waited
    for; of any other, only time tells whether it is ending or belongs to a library.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = _others()
        if not found:
            return None if found is None else []
        known = {thread.native_id for thread in threading.enumerate()}
        if known & found.keys() or time.monotonic() >= deadline:
            return sorted(found.values())
        time.sleep(0.002)


def _others() -> dict[int, str] | None:
    """Names by number, without this thread and those that the kernel is ending."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = {}
    try:
        for task in _TASKS.iterdir():
            number = int(task.name)
            if number != threading.get_native_id() and (name := _name_of(task)) is not None:
                found[number] = names.get(number, name)
    except OSError:
        return None
    return found


def _name_of(task: Path) -> str | None:
    """As the system knows it; None if it has ended, or is about to without running anything more."""
    try:
        name, _, rest = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()
    if fields[0] in "ZX" or int(fields[6]) & _EXITING:
        return None
    return name.partition("(")[2]
