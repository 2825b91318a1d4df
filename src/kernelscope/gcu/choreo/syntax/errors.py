"""Where in a source text something stands, and errors that point there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text: line and column of its start, counted from 1, and its length."""

    line: int = 0
    column: int = 0
    length: int = 1


NOWHERE = Span()


class ChoreoError(Exception):
    """Something wrong in a Choreo program, with the place."""

    def __init__(self, message: str, span: Span = NOWHERE, source: str = "", file: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.source = source
        self.file = file

    @property
    def line(self) -> int:
        return self.span.line

    @property
    def column(self) -> int:
        return self.span.column

    def within(self, source: str, file: str) -> ChoreoError:
        """The same error, knowing the text it speaks of."""
        self.source, self.file = self.source or source, self.file or file
        return self

    def __str__(self) -> str:
        if not self.span.line:
            return self.message
        where = f"{self.file or '<choreo>'}:{self.span.line}:{self.span.column}: error: {self.message}"
        lines = self.source.splitlines()
        if self.span.line > len(lines):
            return where
        text = lines[self.span.line - 1]
        pad = "".join("\t" if c == "\t" else " " for c in text[: self.span.column - 1])
        mark = "^" + "~" * (min(self.span.length, max(1, len(text) - self.span.column + 1)) - 1)
        return f"{where}\n  {text}\n  {pad}{mark}"
