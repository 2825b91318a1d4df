"""Inductor's four levels of looking at intermediate values. Needs no torch."""

from __future__ import annotations

from enum import Enum


class IntermediateValueDebuggingLevel(Enum):
    """The levels of torch's own intermediate-value printer, by the same names and values."""

    OFF = "0"
    SAVE_ONLY = "1"  # each tensor argument before and after each launch, to files
    PRINT_ONLY = "2"
    PRINT_KERNEL_NAMES_ONLY = "3"  # before each launch, flushed: the last one printed is the one that crashed


def level_of(given: IntermediateValueDebuggingLevel | str | int, name: str = "level") -> str:
    """A level's value, "0" to "3", from the level, its value or its name."""
    if isinstance(given, IntermediateValueDebuggingLevel):
        return given.value
    text = str(given).strip()
    for level in IntermediateValueDebuggingLevel:
        if text in (level.value, level.name):
            return level.value
    raise ValueError(
        f"{name}={given!r}: unknown level; use 0 (off), 1 (save), 2 (print) or 3 (print kernel names)"
    )
