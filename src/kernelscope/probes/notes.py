"""How a launch is noted in few words: before it, and, where somebody cares, after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ..events import Brief, Familiar

LEFT_AT, LEFT = 16, 2  # what a ring's note says once the launch is over


class NoteRing(Protocol):
    """Mapped memory that a launch is noted in without calling any Python: see run/flight.py."""

    next_slot: Callable[[], tuple[int, int]]  # number and place of the next note
    pack: Callable[..., None]
    map: Any
    limit: int  # the first number that has no room yet
    make_room: Callable[[int], None]
    after: Callable[[int], None] | None  # wants to hear of the end of each launch: number - 1

    def meet_familiar(self, familiar: Familiar) -> None: ...


class NoteLog(NamedTuple):
    """`append` before the launch; what it returns is given to `left` after it. Or both through `ring`."""

    append: Callable[[Brief], Any]
    left: Callable[[Any], None] | None = None
    ring: NoteRing | None = None
    next_slot: Any = None  # these three are the ring's: one tuple is unpacked sooner than they are looked up
    pack: Any = None
    memory: Any = None


def through(ring: NoteRing, append: Callable[[Brief], Any], left: Callable[[Any], None]) -> NoteLog:
    return NoteLog(append, left, ring, ring.next_slot, ring.pack, ring.map)


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
