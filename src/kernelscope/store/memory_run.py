"""A run that is kept in memory: what `record()` gives without a path."""

from __future__ import annotations

import os
import sys
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

# A graph that outlasted two recordings notes sites that are not known any more.
_UNKNOWN = SteadySite(Site(-1, Kernel(-1, "(unknown)", "unknown", "unknown"), ()), ())


class MemoryRun(Run):
    """A run whose calls are Python objects. A recording appends to its lists while it is open."""

    def __init__(self, info: RunInfo) -> None:
        super().__init__(info)
        self.steady_sites: Mapping[int, SteadySite] = {}  # what the numbers in compact calls stand for
        # As recorded; `records_of_calls` spells them out. A replay stands in the place of each of its calls.
        self.entries: list[Call | CompactCall | Replay] = []
        self._end = sys.maxsize  # entries from here on came when the recording had closed
        self.errors_of_compact: dict[int, str] = {}  # by id of the entry
        self.first_slots: dict[int, int] = {}  # by graph call, where its fingerprints were planned
        self.fingerprinter: Any = None  # reads slots
        self._spelled_out = 0
        self._replay: tuple[Replay | None, int] = None, 0  # the newest that was spelled out; its first call
        self._positions: dict[int, int] = {}  # of calls, by key
        self.noted: list[Finding] = []
        self.graph_calls: dict[int, GraphCall] = {}
        self.marks: list[Mark] = []
        self.compiled: list[Record] = []
        self.audit: Audit | None = None
        self.compiler_settings: dict[str, dict[str, Any]] = {}

    @property
    def records_of_calls(self) -> list[Call]:
        entries: list[Any] = self.entries
        for position in range(self._spelled_out, len(self)):
            entry = entries[position]
            if isinstance(entry, bytes):
                entry = entries[position] = self._in_full(entry)
            elif isinstance(entry, Replay):
                if entry is not self._replay[0]:
                    self._replay = entry, position
                entry = entries[position] = self._replayed(entry, position)
            else:
                self._positions[entry.key] = position
            entry.index = position
            self._spelled_out = position + 1
        # Another thread may have noted one more since, or when the recording had closed.
        return entries if len(entries) == self._spelled_out else entries[: self._spelled_out]

    def _replayed(self, replay: Replay, position: int) -> Call:
        call = replayed_call(replay, position, self._replay[1])
        about = self.graph_calls.get(replay.graph_call)
        if about is not None:
            call.parent = about.parent
        return call

    def _in_full(self, entry: CompactCall) -> Call:
        number, graph_call, when = COMPACT_CALL.unpack(entry)
        steady = self.steady_sites.get(number, _UNKNOWN)
        error = self.errors_of_compact.pop(id(entry), "")
        call = Call(-1, steady.site, graph_call, start_ns=when, error=error)
        call.uninitialised = steady.uninitialised
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

    def settle(self) -> None:
        """The recording has closed: what a launch that is still under way adds later is not part of it."""
        self._end = min(len(self.entries), self._end)
        self.graph_calls, self.marks = dict(self.graph_calls), list(self.marks)
        self.noted, self.compiled = list(self.noted), list(self.compiled)

    def resume(self) -> None:
        """The recording opens, maybe once more."""
        del self.entries[self._end :]
        self._end = sys.maxsize

    def save(self, path: str | os.PathLike[str]) -> Path:
        return save_run(self, path)

    def __len__(self) -> int:
        return min(len(self.entries), self._end)
