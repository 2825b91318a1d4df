"""Compact calls on their way into the ring: what the program's thread does for each of them.

A call that is noted plainly has no end of its own. It is over when its graph call comes to another one, or
ends; so a launch costs one `pack_into` and nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kernelscope.events import COMPACT_CALL, CompactCall

from .native_noter import LIBRARY
from .recorder import CELL, HEADER_BYTES, LEFT, NOTE, STATE_AT, Flight

Mark = Callable[[int, int], int]  # of a stream and a call: the stream's number among the markers
StreamOf = Callable[[int], int]  # the current stream of a device


class Markers(Protocol):
    """Has streams say how far they have come."""

    numbers: dict[int, int]
    marked: dict[int, int]
    driver: tuple[int, int] | None  # the address of its function, and of the words; once it is there

    def mark(self, stream: int, index: int) -> int: ...


class PlainNotes:
    """Notes launches without their ends, and knows which of them may still be running."""

    def __init__(self, flight: Flight, *, native: bool = True) -> None:
        self._flight = flight
        self._queued: dict[int, tuple[int, int]] = {}  # by graph call: its newest launch on a GPU, the stream
        self._mark: Mark | None = None
        self._native = LIBRARY.get() if native else None
        self.note: Callable[[CompactCall], None] = self._noter()
        self.ended: Callable[[int], None] = self._ended
        self.replayed: Callable[[bytes, int, int, int, int], None] = flight.replayed
        if self._native is not None:
            self._use(self._native.noter(flight, (None, None, {}, {})))

    def _use(self, noter: Any) -> None:
        self.note, self.ended, self.replayed = noter, noter.ended, noter.replayed

    def mark_with(self, markers: Markers, stream_of: StreamOf) -> None:
        """From now on, have streams say which calls have completed."""
        self._mark = markers.mark
        if self._native is None:
            self.note = self._noter_on_device(stream_of)
            return

        def mark(stream: int, index: int) -> int:
            """Until a stream has been marked once: the driver may not be there yet."""
            number = markers.mark(stream, index)
            if markers.driver is not None:
                noter.write_with(*markers.driver)
            return number

        noter = self._native.noter(self._flight, (stream_of, mark, markers.numbers, markers.marked))
        self._use(noter)

    def _noter(self) -> Callable[[CompactCall], None]:
        flight, unpack = self._flight, COMPACT_CALL.unpack
        ring, pack, known, running = flight.map, NOTE.pack_into, flight.noted, flight.running
        next_cell = flight.next_cell

        def note(entry: CompactCall) -> None:
            steady, graph_call, start_ns = unpack(entry)
            found = known.get(steady)
            if found is None:
                found = flight.meet_noted(steady)
            number, at = next_cell()
            if number > flight.limit:
                flight.make_room(number)
            running[graph_call] = number  # before the cell: what the ring shows is over or stands here
            pack(ring, at, start_ns, found[0], graph_call, found[1], number)

        return note

    def _noter_on_device(self, stream_of: StreamOf) -> Callable[[CompactCall], None]:
        """The same for calls that may go to a GPU: the one before is marked, which is enqueued by now."""
        flight, unpack = self._flight, COMPACT_CALL.unpack
        ring, pack, known, running = flight.map, NOTE.pack_into, flight.noted, flight.running
        next_cell, devices, queued, mark_queued = (
            flight.next_cell, flight.cuda_devices, self._queued, self._mark_queued,
        )  # fmt: skip

        def note(entry: CompactCall) -> None:
            steady, graph_call, start_ns = unpack(entry)
            found = known.get(steady)
            if found is None:
                found = flight.meet_noted(steady)
            number, at = next_cell()
            if number > flight.limit:
                flight.make_room(number)
            if graph_call in queued:
                mark_queued(*queued.pop(graph_call))
            running[graph_call] = number
            pack(ring, at, start_ns, found[0], graph_call, found[1], number)
            device = devices.get(found[0])
            if device is not None:
                queued[graph_call] = number, stream_of(device)

        return note

    def _mark_queued(self, number: int, stream: int) -> None:
        assert self._mark is not None
        marked = self._mark(stream, number - 1)
        self._flight.on_stream(number - 1, marked)

    def _ended(self, graph_call: int) -> None:
        """The graph call is over, and so is its last launch."""
        number = self._flight.running.pop(graph_call, None)
        if number is None:
            return
        queued: Any = self._queued.pop(graph_call, None)
        if queued is not None:
            self._mark_queued(*queued)
        flight, index = self._flight, number - 1
        if not flight.abandoned or index not in flight.abandoned:
            flight.map[HEADER_BYTES + STATE_AT + (index & flight.cells - 1) * CELL.size] = LEFT
