"""Reads the flight recorder's ring in the process that fills it: for the writer, and while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelscope.events import Site

from .recorder import CELL, ENTERED, HEADER_BYTES, PASSING, Flight

_AT_ONCE = 8192
_PATIENCE = 1.0  # seconds for a launch that has its number to fill its cell
_LOOK_BACK = 2000  # calls that may have begun since the oldest one that still runs


@dataclass(frozen=True, slots=True)
class RecentCall:
    """One launch; `site` is None if it is no longer known."""

    index: int
    site: Site | None
    start_ns: int
    is_executing: bool  # entered and not left


def newest_calls(flight: Flight) -> list[RecentCall]:
    """The newest call, and before it those that still run; newest first. Takes no lock."""
    found: list[RecentCall] = []
    running = set(flight.running.values())
    for index, start_ns, site, state in _newest_cells(flight):
        runs = state == ENTERED or (state == PASSING and index + 1 in running)
        if runs or not found:
            found.append(RecentCall(index, flight.sites.get(site), start_ns, runs))
    return found


def _newest_cells(flight: Flight) -> Iterator[tuple[int, int, int, int]]:
    newest = flight.next_call - 1
    for index in range(newest, max(newest - min(_LOOK_BACK, flight.cells), -1), -1):
        at = HEADER_BYTES + (index & (flight.cells - 1)) * CELL.size
        start_ns, site, _, state, _, _, _, number, _ = CELL.unpack_from(flight.map, at)
        if number == index + 1:  # else another thread is about to write it
            yield index, start_ns, site, state


class Ring:
    """Where the writer stands in the ring."""

    def __init__(self, flight: Flight) -> None:
        import numpy

        self._numpy = numpy
        self._layout = numpy.dtype(
            [("start", "<u8"), ("site", "<u4"), ("graph_call", "<i4"), ("state", "u1"), ("stream", "u1"),
             ("is_full", "<u2"), ("layout", "<u4"), ("call", "<u8"), ("end", "<u8")]
        )  # fmt: skip
        self._flight = flight
        self.taken = 0  # calls before this one have left the ring
        self._late: set[int] = set()  # except these, which are still running
        self._gap = (-1, 0.0)  # a call that has no cell, and since when

    def take(self, *, final: bool) -> bytes:
        """Noted calls that are over since the last time, six numbers each: see `Database.noted_calls`."""
        pieces: list[Any] = []
        start = self.taken
        while True:
            found = self._next_piece(start)
            if not len(found):
                if self.taken < start + self._flight.cells and self._pass_gap(final):
                    continue
                break
            running = self._running(found)
            self._late.update((found["call"][running] - 1).tolist())
            pieces.append(found[~running & (found["is_full"] == 0)])
            self.taken += len(found)
        # Last, so that none is missing before one that was taken: it may have ended meanwhile.
        pieces += self._take_late(final)
        return self._numbers(self._numpy.concatenate(pieces)) if pieces else b""

    def _running(self, cells: Any) -> Any:
        """Which of these cells, which were read before this, are of calls that were running then."""
        states = cells["state"]
        running = states == ENTERED
        passing = states == PASSING
        if passing.any():
            newest = self._numpy.fromiter(list(self._flight.running.values()), self._numpy.uint64)
            running |= passing & self._numpy.isin(cells["call"], newest)
        return running

    def _pass_gap(self, final: bool) -> bool:
        """Whether to go on past a number that has no cell: an exception, such as Ctrl-C, came in between.

        It may yet be filled, so it counts as a late one. Waiting for it for ever would stop the program.
        """
        if self._flight.next_call <= self.taken:
            return False
        now = time.monotonic()
        if self._gap[0] != self.taken:
            self._gap = self.taken, now
        if not final and now - self._gap[1] < _PATIENCE:
            return False
        self._late.add(self.taken)
        self.taken += 1
        return True

    def _numbers(self, cells: Any) -> bytes:
        numpy = self._numpy
        table = numpy.empty((len(cells), 6), numpy.int64)
        for column, name in enumerate(("call", "site", "graph_call", "start")):
            table[:, column] = cells[name]
        table[:, 0] -= 1
        table[:, 4] = numpy.where(cells["end"] > cells["start"], cells["end"] - cells["start"], 0)
        table[:, 5] = cells["layout"]
        numbers: bytes = table.tobytes()
        return numbers

    def free(self) -> None:
        """What has been taken may be overwritten."""
        self._flight.limit = min(self._late, default=self.taken) + self._flight.cells

    def _next_piece(self, start: int) -> Any:
        """The cells from `taken` on that hold what they should, as many as lie in one piece."""
        numpy, cells, taken = self._numpy, self._flight.cells, self.taken
        cell = taken & (cells - 1)
        at, count = HEADER_BYTES + cell * CELL.size, min(cells - cell, _AT_ONCE, start + cells - taken)
        found = numpy.frombuffer(self._flight.map[at : at + count * CELL.size], self._layout)
        there = found["call"] == numpy.arange(taken + 1, taken + 1 + count, dtype=numpy.uint64)
        return found if there.all() else found[: int(there.argmin())]

    def _take_late(self, final: bool) -> list[Any]:
        pieces, flight = [], self._flight
        for index in sorted(self._late):
            at = HEADER_BYTES + (index & (flight.cells - 1)) * CELL.size
            cell = self._numpy.frombuffer(flight.map[at : at + CELL.size], self._layout)
            is_there = cell["call"][0] == index + 1
            is_running = not is_there or bool(self._running(cell)[0])
            if is_running and not final and self.taken - index < flight.cells // 2:
                continue
            if is_running:
                flight.abandon(index)  # its cell is needed
            if is_there and not cell["is_full"][0]:
                pieces.append(cell)
            self._late.discard(index)
        return pieces
