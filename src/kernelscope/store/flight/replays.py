"""Replays of CUDA graphs on their way to disk: cells in the ring at once, and one record for the writer."""

from __future__ import annotations

from collections.abc import Callable

from kernelscope.events import CapturedGraph, Replay
from kernelscope.store.run_db.row_writer import Database

from .markers import StreamMarkers
from .noting import Mark, PlainNotes
from .recorder import CELL, Flight

UNDER_WAY = "replays_under_way"  # key of what a run tells of them


class QueuedReplays:
    """What was replayed, until the writer takes it."""

    def __init__(self, flight: Flight, notes: PlainNotes, make_room: Callable[[int], None]) -> None:
        self._flight = flight
        self._notes = notes
        self._make_room = make_room
        self.mark: Mark | None = None  # has a stream say that it has come past a call
        self._cells: dict[CapturedGraph, bytes] = {}  # of one replay
        self._queue: list[tuple[int, Replay]] = []  # with their first calls
        self._marked: list[tuple[int, Replay]] = []  # of graphs that mark their progress, until they are over
        self._keeps = True

    def add(self, replay: Replay) -> None:
        """A CUDA graph was replayed; one marker stands for all of its calls."""
        if not self._keeps:
            return
        flight, graph = self._flight, replay.graph
        cells = self._cells.get(graph)
        if cells is None:
            cells = self._cells[graph] = flight.cells_of(graph)
        count = len(graph.launches)
        first = flight.next_cell.take(count)
        stream = self.mark(replay.stream, first + count - 2) if self.mark is not None else 0
        most = flight.cells // 2  # a graph may have more launches than the ring has cells
        for start in range(0, count, most):
            end = min(start + most, count)
            if first + end - 1 > flight.limit:
                self._make_room(first + end - 1)
            some = cells if count <= most else cells[start * CELL.size : end * CELL.size]
            self._notes.replayed(some, first + start, replay.start_ns, replay.graph_call, stream)
        self._queue.append((first - 1, replay))
        if graph.progress is not None:
            self._marked.append((first - 1, replay))

    def under_way(self, streams: list[tuple[int, int]]) -> dict[str, int]:
        """How many calls of a replay are over, by its first call: of each stream's first replay that is not.

        `streams` has the handle and the newest completed call + 1 of each. The words of a replay that has not
        begun are those of the one before: then all of its calls count as over.
        """
        completed, found = dict(streams), dict[int, tuple[str, int]]()
        known = self._marked[:]  # others may be added meanwhile
        waiting = [
            (first, replay)
            for first, replay in known
            if first + len(replay.graph.launches) > completed.get(replay.stream, 0)
        ]
        self._marked[: len(known)] = waiting
        for first, replay in waiting:
            if replay.stream not in found:
                graph = replay.graph
                found[replay.stream] = str(first), graph.progress.completed(graph.places)
        return dict(found.values())

    def note_progress(self, db: Database, markers: StreamMarkers | None) -> None:
        """Have the run tell how far replays have come, if their graphs mark that."""
        if self._marked and markers is not None:
            db.note(UNDER_WAY, self.under_way(markers.completed()))

    def take(self, until: int) -> list[tuple[int, Replay]]:
        """Those whose calls are all before this one."""
        queue = self._queue
        found = queue[: len(queue)]
        del queue[: len(found)]
        queue[:0] = [one for one in found if one[0] + len(one[1].graph.launches) > until]
        return [one for one in found if one[0] + len(one[1].graph.launches) <= until]

    def keep_nothing(self) -> None:
        """From now on: nothing will be written any more."""
        self._keeps, self._queue, self._marked, self._cells = False, [], [], {}


def calls_of(replays: list[tuple[int, Replay]]) -> int:
    """How many calls these are."""
    return sum(len(replay.graph.launches) for _, replay in replays)
