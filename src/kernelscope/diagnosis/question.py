"""What to diagnose, and how far."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from kernelscope.bisection.script_search import Request


@dataclass(frozen=True, slots=True)
class Question:
    """A script, and perhaps what counts as its failure."""

    words: list[str]  # script.py … or -m module …
    stem: str  # its name
    condition: Request | None = None  # as for `kernelscope bisect`
    quick: bool = False  # neither bisect nor reduce
    seconds: float = 0.0  # time limit of the search; 0: none

    @property
    def command(self) -> list[str]:
        return [sys.executable, *self.words]

    @property
    def script(self) -> Path | None:
        """Its file; None for a module."""
        return None if self.words[0] == "-m" else Path(self.words[0])

    def typed(self, command: str, *options: str) -> str:
        """What a user types for one step."""
        return " ".join(["kernelscope", command, *options, shlex.join(self.words)])

    def bisection(self, check: str) -> Request:
        """As the command `bisect --fails-on CHECK` makes it."""
        plain = self.condition or Request(tuple(self.words))
        return plain if self.condition is not None else replace(plain, check=check)
