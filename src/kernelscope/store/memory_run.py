"""A run that is kept in memory: what `record()` gives without a path."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.events import (
    COMPACT_CALL,
    Call,
    CompactCall,
    Finding,
    GraphCall,
    Kernel,
    Mark,
    Replay,
    RunInfo,
    Site,
    SteadySite,
)
from kernelscope.model.audit import Audit
from kernelscope.model.run import Run
from kernelscope.stages.records import Record

from .planned_calls import replayed_call, spell_out
from .save_run import save_run

_LOCKS = "_replaying", "_reading"
# A graph that outlasted two recordings notes sites that are not known any more.
_UNKNOWN = SteadySite(Site(-1, Kernel(-1, "(unknown)", "unknown", "unknown"), ()), ())


class MemoryRun(Run):
    """A run whose calls are Python objects. A recording appends to its lists while it is open."""

    def __init__(self, info: RunInfo) -> None:
        super().__init__(info)
        self.steady_sites: Mapping[int, SteadySite] = {}  # what the numbers in compact calls stand for
        # As recorded; `records_of_calls` spells them out. A replay stands for all of its calls.
        self.entries: list[Call | CompactCall | Replay] = []
        self._end = sys.maxsize  # entries from here on came when the recording had closed
        self._more = 0  # calls than entries, because of replays
        self._settled: int | None = None  # the number of calls when the recording closed
        self._make_locks()
        self.errors_of_compact: dict[int, str] = {}  # by id of the entry
        self.first_slots: dict[int, int] = {}  # by graph call, where its fingerprints were planned
        self.fingerprinter: Any = None  # reads slots
        self._calls: list[Call] = []  # spelled out
        self._spelled_out = 0  # entries
        self._positions: dict[int, int] = {}  # of calls, by key
        self.noted: list[Finding] = []
        self.graph_calls: dict[int, GraphCall] = {}
        self.marks: list[Mark] = []
        self.compiled: list[Record] = []
        self.audit: Audit | None = None
        self.compiler_settings: dict[str, dict[str, Any]] = {}

    def _make_locks(self) -> None:
        # A handler of a signal may come at any moment, and read the run or close the recording.
        self._replaying, self._reading = threading.RLock(), threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """For a copy, or another process: it spells out by itself what it does not have in full."""
        with self._replaying, self._reading:
            return {
                **{name: held for name, held in vars(self).items() if name not in _LOCKS},
                "_calls": list(self._calls),
                "_positions": dict(self._positions),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()

    @property
    def records_of_calls(self) -> list[Call]:
        with self._reading:
            # Another thread may note more meanwhile, or when the recording has closed.
            while (place := self._spelled_out) < min(len(self.entries), self._end):
                calls = self._in_full(place)
                if self._spelled_out == place:  # no handler of a signal has read the run meanwhile
                    self._calls += calls
                    self._spelled_out = place + 1
        return self._calls

    def _in_full(self, place: int) -> list[Call]:
        entry, position = self.entries[place], len(self._calls)
        if isinstance(entry, Replay):
            return self._replayed(entry, position)
        if isinstance(entry, bytes):
            entry = self.entries[place] = self._noted(entry)
        else:
            self._positions[entry.key] = position
        entry.index = position
        return [entry]

    def _replayed(self, replay: Replay, first: int) -> list[Call]:
        calls = [replayed_call(replay, first + n, first) for n in range(len(replay.graph.launches))]
        about = self.graph_calls.get(replay.graph_call)
        if about is not None:
            for call in calls:
                call.parent = about.parent
        return calls

    def _noted(self, entry: CompactCall) -> Call:
        number, graph_call, when = COMPACT_CALL.unpack(entry)
        steady = self.steady_sites.get(number, _UNKNOWN)
        error = self.errors_of_compact.pop(id(entry), "")
        call = Call(-1, steady.site, graph_call, start_ns=when, error=error)
        call.uninitialised, call.scalars = steady.uninitialised, steady.scalars
        first = self.first_slots.get(graph_call)
        if first is not None:
            call.fingerprinter = self.fingerprinter
            spell_out(call, steady, first)
        about = self.graph_calls.get(graph_call)
        if about is not None:  # the graph call began inside the recording
            call.step, call.phase = about.step, about.phase
            call.thread, call.stream, call.parent = about.thread, about.stream, about.parent
        return call

    def position_of(self, key: int) -> int:
        return self._positions.get(key, -1) if key >= 0 else -1

    def noted_findings(self) -> list[Finding]:
        return list(self.noted)

    def replayed(self, replay: Replay) -> None:
        """A CUDA graph was replayed: one entry, however many launches it has."""
        with self._replaying:
            self._more += len(replay.graph.launches) - 1  # first, so that a handler that settles sees it
            self.entries.append(replay)

    def newest_position(self, entry: Call | CompactCall, most: int) -> int:
        """Of an entry that is one of so many that came last; otherwise -1."""
        with self._replaying:
            entries, more = self.entries, self._more
            last = len(entries) - 1
            for place in range(last, max(last - most, -1), -1):
                found = entries[place]
                if found is entry:
                    return place + more
                if isinstance(found, Replay):
                    more -= len(found.graph.launches) - 1
        return -1

    def settle(self) -> None:
        """The recording has closed: what a launch that is still under way adds later is not part of it."""
        with self._replaying:
            self._end = min(len(self.entries), self._end)
            if self._settled is None:
                self._more = _more_calls(self.entries[: self._end]) if self._more else 0
                self._settled = self._end + self._more
        self.graph_calls, self.marks = dict(self.graph_calls), list(self.marks)
        self.noted, self.compiled = list(self.noted), list(self.compiled)

    def resume(self) -> None:
        """The recording opens, maybe once more."""
        with self._replaying:
            del self.entries[self._end :]
            if self._settled is not None:
                self._more = self._settled - self._end
            self._end, self._settled = sys.maxsize, None

    def save(self, path: str | os.PathLike[str]) -> Path:
        return save_run(self, path)

    def __len__(self) -> int:
        with self._replaying:
            return len(self.entries) + self._more if self._settled is None else self._settled


def _more_calls(entries: list[Call | CompactCall | Replay]) -> int:
    """How many calls these are more than entries."""
    return sum(len(entry.graph.launches) - 1 for entry in entries if isinstance(entry, Replay))
