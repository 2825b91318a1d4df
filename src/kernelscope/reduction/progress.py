"""How a search goes: one line that changes on a terminal, one line a trial elsewhere. Needs no torch."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .trials import Trials


class Progress:
    def __init__(self, nodes: int) -> None:
        self._nodes = max(2, nodes)
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()
        self.trials: Trials | None = None

    def tell(self, line: str) -> None:
        said = f"kernelscope: {line}{self._left()}"
        if self._live:
            print(f"\r\x1b[2K{said[:150]}", end="", file=sys.stderr, flush=True)
        else:
            print(said, file=sys.stderr, flush=True)

    def _left(self) -> str:
        """An estimate: what halving takes, and a few trials for the inputs."""
        if self.trials is None or not self.trials.count:
            return ""
        expected = 2 * math.ceil(math.log2(self._nodes)) + 8
        left = max(1, expected - self.trials.count) * self.trials.seconds / self.trials.count
        return f" ({time.monotonic() - self._began:.0f} s, about {left:.0f} s left)"

    def end(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
