"""Standard output on a terminal: no line is wider than it, and a long text goes through a pager."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import IO, TYPE_CHECKING, TextIO

from kernelscope.config import pager_from_environment
from kernelscope.text.terminal_size import size_of
from kernelscope.text.visible import visible
from kernelscope.text.widths import wrapped

if TYPE_CHECKING:
    import subprocess  # loaded only when a pager is started


class Screen(io.TextIOBase):
    """A terminal that is written to line by line."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self.columns, self.rows = size_of(terminal)  # `columns` is what views fit their tables to
        self.pages = False  # whether a text that is longer than the screen goes through a pager
        self.was_quit = False  # the user has left the pager before the end of the text
        self._begun = ""  # of a line
        self._first: list[str] = []  # lines that wait until it is known whether a pager is needed
        self._pager: subprocess.Popen[str] | None = None

    def show_everything(self) -> None:
        """Lines as long as they are, and no pager."""
        self.columns, self.pages = 0, False

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in map(visible, lines):
            for piece in wrapped(line, self.columns) if self.columns else [line]:
                self._put(piece + "\n")
        return len(text)

    def _put(self, line: str) -> None:
        if self._pager is None and self.pages:
            self._first.append(line)
            if len(self._first) < self.rows:
                return
            self._pager = _start_pager(self._terminal)
            self.pages = self._pager is not None
            line = "".join(self._first)
            self._first = []
        self._send(line)

    def _send(self, text: str) -> None:
        out: IO[str] = self._terminal
        if self._pager is not None:
            assert self._pager.stdin is not None
            out = self._pager.stdin
        try:
            out.write(text)
        except BrokenPipeError:
            self.was_quit = self._pager is not None
            raise

    def flush(self) -> None:
        if self._pager is None and not self._terminal.closed:
            if not self.pages:
                self._terminal.write(visible(self._begun))
                self._begun = ""
            self._terminal.flush()

    def finish(self) -> None:
        """Write what is left, and wait until the user leaves the pager."""
        try:
            if self._begun:
                self.write("\n")
            self._send("".join(self._first))
            self._first = []
            if self._pager is None:
                self._terminal.flush()
                return
            assert self._pager.stdin is not None
            self._pager.stdin.close()
        except BrokenPipeError:
            if self._pager is None:
                raise
        while self._pager is not None and self._pager.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # the pager's own key
                self._pager.wait()

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding


def _start_pager(terminal: TextIO) -> subprocess.Popen[str] | None:
    """None if there is none, or it is `cat`: then the text is printed."""
    import shlex
    import subprocess

    command, environ = pager_from_environment()
    if command.strip() in ("", "cat") or not sys.stdin.isatty():
        return None
    for each in dict.fromkeys((command, "more")):
        with contextlib.suppress(OSError, ValueError):  # it is not there, or is not a command
            return subprocess.Popen(
                shlex.split(each), env=environ, stdin=subprocess.PIPE, stdout=terminal,
                text=True, encoding=terminal.encoding, errors=terminal.errors,
            )  # fmt: skip
    return None
