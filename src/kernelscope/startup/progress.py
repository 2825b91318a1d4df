"""How a recorded program is doing, on the last row of the terminal: apart from what the program prints."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TextIO

from kernelscope.config import is_plain_terminal
from kernelscope.store import folder
from kernelscope.store.flight.reader import read_doing, read_status
from kernelscope.text.amounts import byte_size, counted
from kernelscope.text.terminal_size import size_of
from kernelscope.text.visible import control, one_line
from kernelscope.text.widths import shortened

_FEWEST_ROWS = 5


def progress_text(path: Path) -> str:
    """What the processes of a run have done so far, or what the compiler is working on."""
    parts = folder.parts(path)
    found = [status for part in parts if (status := read_status(part / folder.FLIGHT))]
    if not found:
        return "kernelscope: waiting for torch"
    calls, graphs, written = (sum(column) for column in zip(*found, strict=True))
    done = f"{counted(calls, 'call')}, {counted(graphs, 'graph')}, {byte_size(written)} written"
    for part in parts:
        what, since = read_doing(part / folder.FLIGHT)
        if what:
            seconds = max(time.monotonic_ns() - since, 0) // 1_000_000_000
            return f"kernelscope: compiling {what}, {seconds} s"
    return f"kernelscope: {done}" if calls else "kernelscope: recording; nothing compiled has run yet"


def terminal_columns(stream: TextIO) -> int:
    """0 where it is not a terminal."""
    return size_of(stream)[0] if stream.isatty() else 0


class StatusRow:
    """The last row, which the program's output does not scroll through. Does nothing without a terminal.

    Each time it is one write, between saving and restoring the cursor, so it cannot be mixed with the
    program's output. Line feeds around the text do nothing there; they keep lines apart in a log of the
    terminal.
    """

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._size = (0, 0)
        self._shown = ""
        self._is_live = stream.isatty() and not is_plain_terminal()

    def __enter__(self) -> StatusRow:
        return self

    def show(self, text: str) -> None:
        if not self._is_live:
            return
        columns, rows = size = size_of(self._stream)
        if rows < _FEWEST_ROWS or (text == self._shown and size == self._size):
            return
        self._shown = text
        before = ""
        if size != self._size:  # the first time, or after the window has changed
            # Down and up again, so that the cursor is not on the last row; then let the others scroll alone.
            before = f"\x1bD\x1b[1A\x1b7\x1b[1;{rows - 1}r\x1b8"
            self._size = size
        line = shortened(one_line(text), columns - 1)
        self._send(f"{before}\x1b7\x1b[{rows};1H\n\x1b[{rows};1H\x1b[2K{line}\x1b[{rows};1H\n\x1b8")

    def __exit__(self, *_: object) -> None:
        if self._size != (0, 0):
            rows = self._size[1]
            self._send(f"\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8")

    def _send(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            control(self._stream, text)
            self._stream.flush()
