"""What can be wrong with a run on disk, said in one sentence."""

from __future__ import annotations


class RunError(Exception):
    """A run that cannot be read or written. The message says what, where, and what to do."""


class NoGil(RunError):
    """This Python cannot be recorded."""

    def __init__(self) -> None:
        super().__init__(
            "this Python runs without its global interpreter lock, which recording relies on; start it with "
            "PYTHON_GIL=1 or -X gil=1, or use the standard build of Python"
        )
