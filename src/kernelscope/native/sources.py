"""C++ sources of ours: one file, or a file and the headers beside it."""

from __future__ import annotations

import re
from pathlib import Path

_INCLUDE = re.compile(r'^#include "([\w/.]+)"\n', re.MULTILINE)


def joined(source: Path) -> str:
    """The text of a C++ file with our own headers in place of the lines that include them, each once."""
    return _joined(source, set())


def _joined(source: Path, seen: set[Path]) -> str:
    def text_of(line: re.Match[str]) -> str:
        header = source.parent / line[1]
        if header in seen:
            return ""
        seen.add(header)
        return _joined(header, seen).replace("#pragma once\n", "", 1)

    return _INCLUDE.sub(text_of, source.read_text(encoding="utf-8"))
