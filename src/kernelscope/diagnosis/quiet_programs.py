"""The program runs several times; after the first time it prints to a file, and has no input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelscope.private_files import open_private
from kernelscope.text.secrets import Secrets

_LONGEST = 4096  # bytes


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """What this process and its children write to standard output and error goes there instead.

    Their standard input is empty: the first run has read what there was, and the next must not wait for more.
    """
    kept = {number: os.dup(number) for number in (0, 1, 2) if _is_open(number)}
    try:
        with open_private(path, "ab") as file:
            _flush()
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        yield
    finally:
        _flush()
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)


def last_line(path: Path) -> str:
    """The last line that a program has printed there, without secrets."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST))
            text = file.read(_LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return Secrets().hidden_message(lines[-1]) if lines else ""


def _is_open(number: int) -> bool:
    """Standard input may be closed."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
