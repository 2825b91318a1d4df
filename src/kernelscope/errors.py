"""Errors that a user sees as one sentence: what happened, where, what to do."""

from __future__ import annotations

import os


class RunError(Exception):
    """A run that cannot be read or written. The message says what, where, and what to do."""


class EndedOnPurpose:
    """An exception of ours that ends the program after a launch; the launch itself did not fail."""


class NoGil(RunError):
    """This Python cannot be recorded."""

    def __init__(self) -> None:
        super().__init__(
            "this Python runs without its global interpreter lock, which recording relies on; start it with "
            "PYTHON_GIL=1 or -X gil=1, or use the standard build of Python"
        )


def reason(error: BaseException) -> str:
    """Why it failed, without the number and the file of an OSError."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
