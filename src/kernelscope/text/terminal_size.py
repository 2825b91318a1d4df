"""How large a terminal is, and messages that fit it."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

from .visible import visible
from .widths import wrapped

_USUAL = (80, 24)


def size_of(terminal: TextIO) -> tuple[int, int]:
    """Columns and rows; COLUMNS and LINES have precedence, as everywhere."""
    import shutil  # seldom needed, and slow to load

    size = shutil.get_terminal_size(_own_size(terminal))
    return max(size.columns, 20), max(size.lines, 4)


def _own_size(terminal: TextIO) -> tuple[int, int]:
    with contextlib.suppress(OSError, ValueError):
        columns, rows = os.get_terminal_size(terminal.fileno())
        if columns > 0 and rows > 0:
            return columns, rows
    return _USUAL


def fitted(text: str, stream: TextIO) -> str:
    """A message for a stream: wrapped to its width, if it is a terminal."""
    if not stream.isatty():
        return text
    columns, _ = size_of(stream)
    return "\n".join(piece for line in visible(text).split("\n") for piece in wrapped(line, columns))
