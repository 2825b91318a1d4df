"""How a launch is noted in few words: before it, and, where somebody cares, after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..events import Brief


class NoteLog(NamedTuple):
    """`append` before the launch; what it returns is given to `left` after it."""

    append: Callable[[Brief], Any]
    left: Callable[[Any], None] | None = None


NO_NOTES = NoteLog(lambda entry: None)  # of a recording that pauses


def joined(logs: list[NoteLog]) -> NoteLog:
    """One log that notes in all of these."""
    if len(logs) == 1:
        return logs[0]
    appends, lefts = [log.append for log in logs], [log.left for log in logs]

    def append(entry: Brief) -> list[Any]:
        return [each(entry) for each in appends]

    def left(tickets: list[Any]) -> None:
        for each, ticket in zip(lefts, tickets, strict=True):
            if each is not None:
                each(ticket)

    return NoteLog(append, left if any(lefts) else None)
