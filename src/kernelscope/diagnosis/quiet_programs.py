"""The program runs several times; what it prints after the first time goes to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelscope.private_files import open_private


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """What this process and its children write to standard output and error goes there instead."""
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with open_private(path, "ab") as file:
            _flush()
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        _flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
