"""Files and folders that only their owner can read: a run holds source code, command lines and values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

FOLDER, FILE = 0o700, 0o600  # modes


def make_folder(path: Path, *, exist_ok: bool = False) -> Path:
    """A folder, private as well as the one above it where that is made too."""
    try:
        path.mkdir(FOLDER, exist_ok=exist_ok)
    except FileNotFoundError:
        path.parent.mkdir(FOLDER, parents=True, exist_ok=True)
        path.mkdir(FOLDER, exist_ok=exist_ok)
    return path


def open_private(
    path: Path | str, mode: str, *, encoding: str | None = None, errors: str | None = None,
    newline: str | None = None,
) -> IO[Any]:  # fmt: skip
    """As `open`; a file that is new is private."""
    return open(path, mode, encoding=encoding, errors=errors, newline=newline, opener=_private)


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    with open_private(path, "w", encoding="utf-8", errors=errors) as file:
        file.write(text)


def write_bytes(path: Path, data: bytes) -> None:
    with open_private(path, "wb") as file:
        file.write(data)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE)
