"""The newest calls of a recording that keeps none: a finding that comes late still names its call."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

from kernelscope.events import COMPACT_CALL, CapturedGraph, CompactCall, Replay, SteadySite

KEPT_NOTES = 1 << 14  # notes; a GPU is never so many launches behind


class RecentCalls:
    """Counts calls, and remembers the last of those that were noted."""

    def __init__(self) -> None:
        self._taking = threading.RLock()  # a handler of a signal may launch kernels, too
        self.newest = -1
        self._notes: deque[tuple[int, CompactCall]] = deque(maxlen=KEPT_NOTES)
        self._graphs: set[CapturedGraph] = set()
        self._replayed: dict[int, int] = {}  # by site: the first call that a CUDA graph replayed

    def take(self, count: int = 1) -> int:
        """The position of the next call; the calls after it belong to it too, if it has several."""
        with self._taking:
            first = self.newest + 1
            self.newest += count
            return first

    def note(self, entry: CompactCall) -> None:
        self._notes.append((self.take(), entry))

    def replayed(self, replay: Replay) -> None:
        graph = replay.graph
        first = self.take(len(graph.launches))
        if graph not in self._graphs:
            self._graphs.add(graph)
            for position, launch in enumerate(graph.launches, first):
                self._replayed.setdefault(launch.site.id, position)

    def index_of(self, site: int, graph_call: int | None, steady_sites: Mapping[int, SteadySite]) -> int:
        """The call at this site in a graph call; without one, the first that was replayed. -1: not known."""
        if graph_call is None:
            return self._replayed.get(site, -1)
        for position, entry in list(self._notes):
            number, noted_in, _ = COMPACT_CALL.unpack(entry)
            steady = steady_sites.get(number)
            if noted_in == graph_call and steady is not None and steady.site.id == site:
                return position
        return -1
