"""What the compiler is working on right now, in words."""

from __future__ import annotations

from kernelscope.text.frames import short_frame

from .records import FRAME, Compilation


class UnderWay:
    """The compilations that have begun and not ended."""

    def __init__(self) -> None:
        self._open: dict[int, Compilation] = {}
        self._frames: dict[int, Compilation] = {}  # by id, for the function of a graph

    def note(self, compilation: Compilation) -> None:
        """It has begun, or ended."""
        if compilation.direction == FRAME:
            self._frames[compilation.id] = compilation
        if compilation.made:
            self._open.pop(compilation.id, None)
        else:
            self._open[compilation.id] = compilation

    def newest(self) -> tuple[str, int]:
        """The one that began last, and when in ns; empty when nothing is being compiled."""
        if not self._open:
            return "", 0
        newest = max(list(self._open.values()), key=lambda each: each.start_ns)
        frame = self._frames.get(newest.frame, newest)
        name = f" of {frame.name}" if frame.name and frame.direction == FRAME else ""
        where = f" ({short_frame(frame.origin[0])})" if frame.origin else ""
        what = f"frame {newest.compile_id}" if newest.direction == FRAME else (
            f"graph {newest.compile_id} {newest.direction}"
        )  # fmt: skip
        return f"{what}{name}{where}", newest.start_ns
