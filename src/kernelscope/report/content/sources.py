"""The user's source, as far as it can be shown.

A run names lines of the user's files and quotes some of them. A file is shown whole only if it is Python and
has every quoted line where the run says it is: then it is the file that was compiled. A run that was made by
another user opens no file of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.generated_code.line_comments import named_line
from kernelscope.stages.records import Stage
from kernelscope.store.stored_run import StoredRun

Line = tuple[str, int]
LARGEST_FILE = 2_000_000  # bytes


class Sources:
    """Of one run: read once, asked for by each graph."""

    def __init__(self, run: StoredRun) -> None:
        self._quotes: dict[str, dict[int, str]] = {}
        for record in run.compiled:
            if isinstance(record, Stage) and record.language in ("python", "text"):
                for named in filter(None, map(named_line, record.text.split("\n"))):
                    if named.code and (code := named.code.strip()):  # every file has empty lines
                        self._quotes.setdefault(named.file, {}).setdefault(named.line, code)
        self._files: dict[str, list[str] | None] = {}
        self._is_own = not run.why_not_made_here()

    def panes(self, by_line: Mapping[Line, set[int]]) -> list[dict[str, Any]]:
        """A pane for each file, the one with most lines first; `lines` are numbered from 1."""
        files: dict[str, dict[int, list[int]]] = {}
        for (file, line), atoms in sorted(by_line.items()):
            files.setdefault(file, {})[line] = sorted(atoms)
        shown = sorted(files.items(), key=lambda item: -len(item[1]))
        return [
            {
                "file": file,
                "text": self._text(file, marked),
                "lines": marked,
                "whole": self._whole(file) is not None,
            }
            for file, marked in shown
        ]

    def _text(self, file: str, marked: Mapping[int, Any]) -> list[list[Any]]:
        """Number and text of each line: all of them, or those that the run speaks of."""
        whole = self._whole(file)
        if whole is not None:
            return [[number, text] for number, text in enumerate(whole, start=1)]
        quotes = self._quotes.get(file, {})
        return [[number, quotes.get(number)] for number in sorted({*marked, *quotes})]

    def _whole(self, file: str) -> list[str] | None:
        if file not in self._files:
            self._files[file] = _read(file, self._quotes.get(file, {})) if self._is_own else None
        return self._files[file]


def _read(file: str, quotes: Mapping[int, str]) -> list[str] | None:
    path = Path(file)
    try:
        if path.suffix != ".py" or not quotes or not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return None
    fits = all(0 < n <= len(lines) and lines[n - 1].strip() == code for n, code in quotes.items())
    return lines if fits else None
