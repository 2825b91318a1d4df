"""Takes noted calls out of the flight recorder's ring, for the writer."""

from __future__ import annotations

from typing import Any

from .flight import ENTERED, HEADER_BYTES, SLOT, Flight

_AT_ONCE = 8192
_COLUMNS = ["start", "end", "site", "graph_call", "call"]


class Ring:
    """Where the writer stands in the ring."""

    def __init__(self, flight: Flight) -> None:
        import numpy

        self._numpy = numpy
        self._layout = numpy.dtype(
            [("start", "<u8"), ("end", "<u8"), ("site", "<u4"), ("graph_call", "<i4"), ("state", "u1"),
             ("stream", "u1"), ("is_full", "<u2"), ("unused", "<u4"), ("call", "<u8")]
        )  # fmt: skip
        self._flight = flight
        self.taken = 0  # calls before this one have left the ring
        self._late: set[int] = set()  # except these, which are still running

    def take(self, *, final: bool) -> list[Any]:
        """Noted calls that are over since the last time: (start, end, site, graph call, index + 1)."""
        rows: list[Any] = []
        start = self.taken
        while True:
            found = self._next_piece(start)
            if not len(found):
                break
            running = found["state"] == ENTERED
            self._late.update((found["call"][running] - 1).tolist())
            rows += found[~running & (found["is_full"] == 0)][_COLUMNS].tolist()
            self.taken += len(found)
        # Last, so that none is missing before one that was taken: it may have ended meanwhile.
        rows += self._take_late(final)
        return rows

    def free(self) -> None:
        """What has been taken may be overwritten."""
        self._flight.limit = min(self._late, default=self.taken) + self._flight.slots

    def _next_piece(self, start: int) -> Any:
        """The slots from `taken` on that hold what they should, as many as lie in one piece."""
        numpy, slots, taken = self._numpy, self._flight.slots, self.taken
        place = taken & (slots - 1)
        at, count = HEADER_BYTES + place * SLOT.size, min(slots - place, _AT_ONCE, start + slots - taken)
        found = numpy.frombuffer(self._flight.map[at : at + count * SLOT.size], self._layout)
        there = found["call"] == numpy.arange(taken + 1, taken + 1 + count, dtype=numpy.uint64)
        return found if there.all() else found[: int(there.argmin())]

    def _take_late(self, final: bool) -> list[Any]:
        rows, flight = [], self._flight
        for index in sorted(self._late):
            at = HEADER_BYTES + (index & (flight.slots - 1)) * SLOT.size
            [slot] = self._numpy.frombuffer(flight.map[at : at + SLOT.size], self._layout)
            is_running = slot["state"] == ENTERED
            if is_running and not final and self.taken - index < flight.slots // 2:
                continue
            if is_running:
                flight.abandon(index)  # its slot is needed
            if not slot["is_full"]:
                rows.append(slot[_COLUMNS].item())
            self._late.discard(index)
        return rows
