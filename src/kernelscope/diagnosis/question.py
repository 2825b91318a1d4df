"""What to diagnose, and how far."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from kernelscope.bisection.script_search import Request
from kernelscope.text.secrets import hidden_words


@dataclass(frozen=True, slots=True)
class Question:
    """A script, and perhaps what counts as its failure."""

    words: list[str]  # script.py … or -m module …
    stem: str  # its name
    request: Request | None = None  # as for `kernelscope bisect`
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
        """What a user types for one step, in the same folder; secrets are left out, as in a run."""
        words = ["kernelscope", command, *options, *self.words]
        return shlex.join(hidden_words(words)[0])

    @property
    def again(self) -> str:
        """What a user types to ask the same again."""
        options = ["--quick"] if self.quick else []
        options += ["--timeout", f"{self.seconds:g}"] if self.seconds else []
        return self.typed("why", *options, *(check_words(self.request) if self.request else ()))

    def bisection(self, check: str) -> Request:
        """As the command `bisect --fails-on CHECK` makes it."""
        plain = self.request or Request(tuple(self.words))
        return plain if self.request is not None else replace(plain, check=check)


def check_words(request: Request) -> list[str]:
    """The options of `bisect` and `why` for what counts as a failure."""
    if request.check in ("check", "predicate"):
        return [f"--{request.check}", request.what]
    return ["--fails-on", request.check, *(["--message", request.what] if request.what else [])]


def on_run(command: str, *words: object) -> str:
    """What a user types for a command about a run."""
    return shlex.join(["kernelscope", command, *map(str, words)])
