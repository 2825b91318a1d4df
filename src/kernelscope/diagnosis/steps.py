"""The steps of a diagnosis: each is a command's own function, timed and shown while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from .progress import Progress

_T = TypeVar("_T")
PURPOSES = {
    "run": "recording the script",
    "eager": "running it without the compiler",
    "shadow": "comparing each kernel with eager",
    "determinism": "running it several times",
    "bisect": "searching for the part of the compiler",
    "reduce": "searching for the smallest graph that fails",
    "stop": "running it up to the first NaN, to save the inputs",
    "issue": "writing the bug report",
    "report": "writing the page",
    "repro": "writing a script of that call",
}


@dataclass
class Step:
    """One command that was used."""

    name: str
    command: str  # what a user would type for the same
    seconds: float = 0.0
    found: str = ""


class Steps:
    """What was done so far, in order."""

    def __init__(self, progress: Progress) -> None:
        self.done: list[Step] = []
        self._progress = progress

    def take(self, name: str, command: str, action: Callable[[], _T], found: Callable[[_T], str]) -> _T:
        """Run `action`; `found` says in a few words what came of it."""
        step = Step(name, command)
        self.done.append(step)
        self._progress.begin(f"{name}: {PURPOSES[name]}")
        began = time.monotonic()
        try:
            result = action()
            step.found = found(result)
            return result
        except BaseException as error:
            step.found = step.found or f"not finished: {' '.join(str(error).split()) or type(error).__name__}"
            raise
        finally:
            step.seconds = round(time.monotonic() - began, 2)
            self._progress.end(f"{step.seconds:6.1f} s  {name:<11} {step.found}")
