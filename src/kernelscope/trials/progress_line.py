"""How a search goes: one line that changes on a terminal, one line per trial elsewhere. Needs no torch."""

from __future__ import annotations

import math
import sys

from kernelscope.text.terminal_size import fitted, size_of
from kernelscope.text.visible import control
from kernelscope.text.widths import shortened

_CLEAR = "\r\x1b[K"  # the line


class ProgressLine:
    """On stderr."""

    def __init__(self) -> None:
        self.trials = 0
        self._is_live = sys.stderr.isatty()

    def show(self, text: str, seconds_left: float = 0.0) -> None:
        """One trial has ended."""
        self.trials += 1
        left = f", about {math.ceil(seconds_left)} s left" if seconds_left >= 1 else ""
        text = f"kernelscope: {text}{left}"
        if self._is_live:
            control(sys.stderr, _CLEAR)
            text = shortened(text, size_of(sys.stderr)[0] - 1)
        print(text, end="" if self._is_live else "\n", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self.end()
        print(fitted(f"kernelscope: {text}", sys.stderr), file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_live and self.trials:
            control(sys.stderr, _CLEAR)
            sys.stderr.flush()
