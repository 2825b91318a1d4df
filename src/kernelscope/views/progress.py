"""How a search goes, on stderr: one line that is overwritten on a terminal, otherwise one line a trial."""

from __future__ import annotations

import math
import sys


class Progress:
    def __init__(self) -> None:
        self.trials = 0
        self._is_live = sys.stderr.isatty()

    def trial(self, what: str, outcome: str, seconds: float, seconds_left: float) -> None:
        self.trials += 1
        left = f", about {math.ceil(seconds_left)} s left" if seconds_left >= 1 else ""
        text = f"trial {self.trials}: {what}: {outcome} ({seconds:.1f} s){left}"
        print(f"\r\x1b[K{text[:150]}" if self._is_live else text, end="" if self._is_live else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def message(self, text: str) -> None:
        """Something that concerns all trials: a line of its own."""
        print(f"kernelscope: {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_live and self.trials:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
