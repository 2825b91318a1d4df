"""Where a recording puts what it sees: a run in memory, or a folder on disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kernelscope.config import Config
from kernelscope.events import COMPACT_CALL, Call, CompactCall, Finding, GraphCall, Mark, RunInfo
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.model.audit import Audit
from kernelscope.model.run import Run
from kernelscope.probes.bus import BUS
from kernelscope.probes.cuda_graphs.captured_graphs import current_stream
from kernelscope.stages.records import Compilation, Record
from kernelscope.stages.under_way import UnderWay
from kernelscope.store.memory_run import MemoryRun
from kernelscope.store.recent_calls import RecentCalls
from kernelscope.store.run_db import stat_texts
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import TensorSaver
from kernelscope.store.writer_thread import Writer

_GRAPHS_LOOKED_AT = 8  # that may be executing at the same time
_OTHERS = 10_000  # calls that other threads may have made within an instant


class MemorySink:
    """A run that is kept as Python objects."""

    wants_ends = False  # whether it must know when a noted launch is over
    has_failed = False

    def __init__(self, info: RunInfo, *, keeps_calls: bool = True) -> None:
        self.run = MemoryRun(info)
        self._keeps_calls = keeps_calls  # without them it is for its observers only, and keeps nothing
        self._recent = RecentCalls()
        # Where no calls are kept, keys are positions.
        self.next_key: Callable[[], int] = itertools.count().__next__ if keeps_calls else self._recent.take
        self.replayed = self.run.replayed if keeps_calls else self._recent.replayed
        self._looked_at = _LookedAt()
        self._timed: dict[int, Call] = {}  # until their times are known
        self.open()

    def open(self) -> None:
        run = self.run
        run.resume()
        # The run's own while it is recorded: it has copies of them once this is closed.
        self._graph_calls, self._marks, self._compiled = run.graph_calls, run.marks, run.compiled

    @property
    def noted(self) -> list[Finding]:
        return self.run.noted

    def read_slots_with(self, fingerprinter: Fingerprinter | None) -> None:
        self.run.fingerprinter = fingerprinter

    def use_steady_sites(self) -> None:
        self.run.steady_sites = BUS.steady_sites

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        return self.run.entries.append if self._keeps_calls else self._recent.note

    @property
    def last_position(self) -> int:
        """Of the newest call."""
        return len(self.run) - 1 if self._keeps_calls else self._recent.newest

    @property
    def note_with_end(self) -> Callable[[CompactCall], Any]:
        return self.note

    def enter(self, call: Call) -> None:
        if self._keeps_calls:
            self.run.entries.append(call)

    def position(self, call: Call) -> int:
        """The index that a call which was entered will have in the run."""
        return self.run.newest_position(call, _OTHERS)

    def noted_position(self, entry: CompactCall, end: Any) -> int:
        """The same for a note with an end, which taking it returned. -1 when it was not kept."""
        return self.run.newest_position(entry, _OTHERS)

    def leave(self, call: Call, stream: int | None) -> None:
        """A call is over; `stream` is where it was enqueued, if it was."""
        if not self._keeps_calls and call.graph_call >= 0:
            self._looked_at.keep(call)

    def index_of(self, site: int, graph_call: int | None) -> int:
        """The position of the call at this site in a graph call; without one, of the first at this site."""
        if self._keeps_calls:
            return _index_in(self.run)(site, graph_call)
        return self._recent.index_of(site, graph_call, BUS.steady_sites)

    def note_failed(self, graph_call: int, line: int, message: str) -> None:
        for entry in reversed(self.run.entries):
            if not isinstance(entry, bytes):
                if entry.graph_call == graph_call:
                    return  # a launch that was watched came after the last note
                continue
            number, noted_in, _ = COMPACT_CALL.unpack(entry)
            if noted_in == graph_call:
                steady = self.run.steady_sites.get(number)
                if steady is not None and steady.site.line == line:
                    self.run.errors_of_compact[id(entry)] = message
                return

    def graph_call(self, graph_call: GraphCall, *, is_paused: bool) -> None:
        if self._keeps_calls:
            self._graph_calls[graph_call.index] = graph_call

    def mark(self, kind: str, text: str) -> None:
        if self._keeps_calls:
            self._marks.append(Mark(len(self.run), kind, text))

    def finding(self, finding: Finding) -> None:
        """The run has it."""

    def compiled(self, record: Record) -> None:
        if self._keeps_calls:
            self._compiled.append(record)

    def settings(self, found: dict[str, dict[str, Any]]) -> None:
        self.run.compiler_settings = found

    def set_metadata(self, key: str, value: Any) -> None:
        """A run in memory keeps no metadata: the recording has it."""

    def audited(self, audit: Audit) -> None:
        self.run.audit = audit

    def last_calls(self, graph_call: int, launches: int) -> list[Call] | None:
        """The calls of a graph call that has just ended; None if the run does not hold all of them."""
        if not self._keeps_calls:
            return self._looked_at.take(graph_call, launches)
        calls: list[Call] = []
        for entry in itertools.islice(reversed(self.run.entries), 2 * launches + 1000):
            if isinstance(entry, Call) and entry.graph_call == graph_call:
                calls.append(entry)
        return calls[::-1] if len(calls) == launches else None

    def planned(self, graph_call: int, first: int, rows: int) -> None:
        if self._keeps_calls:
            self.run.first_slots[graph_call] = first

    def graph_call_ended(self, graph_call: int) -> None:
        """Its calls are in the run."""

    def awaits_time(self, call: Call) -> None:
        self._timed[call.index] = call

    def took(self, index: int, nanoseconds: int) -> None:
        if index in self._timed:
            self._timed.pop(index).duration_ns = nanoseconds

    def close(self) -> None:
        self.run.settle()

    def forget(self) -> None:
        """The child's copy is its own."""


class DiskSink:
    """A new folder, which survives a crash."""

    def __init__(self, path: Path, info: RunInfo, config: Config, on_failure: Callable[[], None]) -> None:
        self._config = config
        self.writer = Writer(path, info, timed=config.time, keep_last=config.keep_last)
        self.writer.on_failure = on_failure
        self.wants_ends = config.time  # without them a call is over when its graph call comes to the next
        self.writer.flight.steady = lambda number: BUS.steady_sites.get(number)
        self.run: Run = StoredRun(path, info, self.writer)
        self.noted: list[Finding] = []
        if torch.version.cuda is not None:  # not is_available(), after which a fork cannot use the GPU
            self.writer.watch_streams(current_stream)
        self.enter = self.writer.enter
        self.note_failed = self.writer.note_failed
        self.mark = self.writer.mark
        self.finding = self.writer.finding
        self.set_metadata = self.writer.set_metadata
        self.took = self.writer.duration
        self.forget = self.writer.forget
        self.planned = self.writer.planned
        self.replayed = self.writer.replayed
        self.index_of = _index_in(self.run)
        self._looked_at = _LookedAt()
        self._compiling = UnderWay()

    def audited(self, audit: Audit) -> None:
        self.set_metadata("audit", audit.as_json())

    @property
    def has_failed(self) -> bool:
        return bool(self.writer.failure)

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        return self.writer.note if self.wants_ends else self.writer.plain_notes.note

    @property
    def note_with_end(self) -> Callable[[CompactCall], Any]:
        return self.writer.note

    @property
    def last_position(self) -> int:
        """Of the newest call."""
        return self.writer.flight.next_call - 1

    def next_key(self) -> int:
        return next(self.writer.flight)

    def position(self, call: Call) -> int:
        return call.index

    def noted_position(self, entry: CompactCall, end: Any) -> int:
        return int(end.args[0]) if end is not None else -1  # it marks the call as over

    def leave(self, call: Call, stream: int | None) -> None:
        if stream is not None:
            self.writer.launched(call.index, stream)
        self.writer.leave(call)
        if call.graph_call >= 0:
            self._looked_at.keep(call)

    def last_calls(self, graph_call: int, launches: int) -> list[Call] | None:
        """The calls of a graph call that has just ended; None if not all of them were looked at."""
        return self._looked_at.take(graph_call, launches)

    def graph_call_ended(self, graph_call: int) -> None:
        self.writer.plain_notes.ended(graph_call)

    def graph_call(self, graph_call: GraphCall, *, is_paused: bool) -> None:
        if not is_paused:
            self.writer.graph_call(graph_call)

    def compiled(self, record: Record) -> None:
        self.writer.compiled.append(record)
        if isinstance(record, Compilation):
            self._compiling.note(record)
            self.writer.flight.doing(*self._compiling.newest())

    def settings(self, found: dict[str, dict[str, Any]]) -> None:
        self.writer.set_metadata("compiler_settings", found)

    def awaits_time(self, call: Call) -> None:
        """It is looked up by its index."""

    def read_slots_with(self, fingerprinter: Fingerprinter | None) -> None:
        self.writer.slots.planned_by = fingerprinter
        if fingerprinter is not None and fingerprinter.has_stats:
            stat_texts.LIBRARY.get()  # now: compiling it would hold the writer up

    def use_steady_sites(self) -> None:
        """The writer looks them up."""

    def open(self) -> None:
        """A folder is opened when it is made."""

    def close(self) -> None:
        self.run.close()
        self.writer.close()

    @cached_property
    def tensor_saver(self) -> TensorSaver:
        """Made when it is needed first."""
        config = self._config
        return TensorSaver(self.writer, config.max_tensors, _unrecorded, config.save_call)


Sink = MemorySink | DiskSink


def _index_in(run: Run) -> Callable[[int, int | None], int]:
    def index_of(site: int, graph_call: int | None) -> int:
        calls = (call.recorded for call in run.calls if call.recorded.site.id == site)
        return next((c.index for c in calls if graph_call in (None, c.graph_call)), -1)

    return index_of


class _LookedAt:
    """The calls of the newest graph calls, kept for a moment, so that the next ones can be planned."""

    def __init__(self) -> None:
        self._calls: dict[int, list[Call]] = {}  # by graph call

    def keep(self, call: Call) -> None:
        calls = self._calls.get(call.graph_call)
        if calls is None:
            for old in list(self._calls)[:-_GRAPHS_LOOKED_AT]:
                self._calls.pop(old, None)
            calls = self._calls.setdefault(call.graph_call, [])
        calls.append(call)

    def take(self, graph_call: int, launches: int) -> list[Call] | None:
        calls = self._calls.pop(graph_call, [])
        return calls if len(calls) == launches else None


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Work of our own with the program's tensors: no probe, mode or subclass sees it."""
    with BUS.mute(), quiet():
        yield
