"""A recording that is started and stopped from outside of the program, such as one in a server.

With KERNELSCOPE_SWITCH=FILE nothing is recorded until FILE exists, and nothing after it was removed. SIGUSR2
creates or removes it, so that all processes of a server follow.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

INTERVAL = 0.25  # seconds between two looks at the file
NUMBER = signal.SIGUSR2  # vLLM uses SIGUSR1 itself


class Pausable(Protocol):
    """What a switch needs of a recording."""

    is_open: bool

    def pause(self, is_paused: bool) -> None: ...


def follow(file: Path, recording: Pausable) -> Callable[[], None]:
    """Pause and continue a recording as the file says; call the result to stop looking."""
    over = threading.Event()
    recording.pause(not file.exists())
    _listen(file)

    def watch() -> None:
        while not over.wait(INTERVAL) and recording.is_open:
            recording.pause(not file.exists())

    threading.Thread(target=watch, name="kernelscope-switch", daemon=True).start()
    return over.set


def _listen(file: Path) -> None:
    """A program that handles this signal keeps its own handler; the file works all the same."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(NUMBER) is not signal.SIG_DFL:
        problem = "the program handles SIGUSR2 itself, so that signal does not switch the recording"
        print(f"kernelscope: {problem}; create or remove {file} instead", file=sys.stderr)
        return
    signal.signal(NUMBER, lambda *_: flip(file))


def flip(file: Path, *_: Any) -> None:
    """Create the file, or remove it."""
    try:
        if file.exists():
            file.unlink(missing_ok=True)
        else:
            file.touch()
    except OSError as error:
        print(f"kernelscope: cannot switch {file}: {error.strerror}", file=sys.stderr)
