"""Listening to C++ wrappers while they run: what they logged becomes calls when they have returned."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from kernelscope.events import CPP_RANGE, OWN_RANGE, Finding, Frame, Graph
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.eager.profilers import range_if_profiled
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.own_work import own_fault

from .launch_log import BEGIN, Entry, LaunchLog, launch_log, why_no_log
from .launch_replay import PastLaunches
from .repeated_executions import RepeatedExecutions, notes_are_enough

ROOM = 2 << 30  # bytes of copies that may wait


class Printed:
    """Which kernels' names wrappers print themselves, before each launch."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[str, ...]] = {}  # by id of the session

    def want(self, by: object, globs: tuple[str, ...] | None) -> None:
        """With None, no names any more."""
        self._wanted.pop(id(by), None)
        if globs is not None:
            self._wanted[id(by)] = globs

    @property
    def globs(self) -> tuple[str, ...] | None:
        """None for no printing; empty for all."""
        wanted = list(self._wanted.values())
        if not wanted:
            return None
        return () if () in wanted else tuple(glob for globs in wanted for glob in globs)


PRINTED = Printed()


class HeardGraphs:
    """What was learnt of the wrappers that ran, while the probe is installed."""

    def __init__(self) -> None:
        self.points: dict[Any, LaunchPoint] = {}
        self.repeated = RepeatedExecutions()
        self._graphs: dict[int, Graph] = {}  # of packages, by id of what is known of them
        self._ids = itertools.count(2_000_000)  # apart from others'
        self._lock = threading.Lock()

    def clear(self) -> None:
        self.points.clear()
        self.repeated.clear()
        self._graphs.clear()

    def forget_locks(self) -> None:
        """In a forked child: the threads that held them are gone."""
        self._lock = threading.Lock()
        self.repeated.forget_lock()

    def graph(self, entry: Entry) -> Graph:
        """That begins with this entry of a package's log."""
        with self._lock:
            known = self._graphs.get(id(entry.meta))
            if known is None:
                source = str(entry.meta.get("source", ""))
                known = Graph(next(self._ids), "inference", str(entry.meta.get("title", "")), source=source)
                self._graphs[id(entry.meta)] = known
            return known


class Listening:
    """A block in which wrappers run on this thread; a class, because a generator costs twice as much."""

    __slots__ = ("_heard", "_inputs", "_log", "_origin", "_range", "_unseen", "_wanted", "_wants_values")

    def __init__(
        self, heard: HeardGraphs, origin: tuple[Frame, ...], unseen: str, inputs: Sequence[Any] = ()
    ) -> None:
        self._heard = heard
        self._origin = origin
        self._unseen = unseen  # what a finding says if nothing is heard
        self._inputs = inputs
        self._log: LaunchLog | None = None
        self._range: Any = None
        self._wants_values = False
        self._wanted: object = None

    def __enter__(self) -> None:
        try:
            log = launch_log()
            if log is None:
                why = f"launches in C++ wrappers are not recorded: {why_no_log()}"
                BUS.finding(Finding("unseen-graph", why))
                return
            self._wanted = BUS.wanted
            self._wants_values = any(listener.wants_values for listener in BUS.listeners)
            names = PRINTED.globs
            log.print_names(names)
            if names is not None:
                sys.stdout.flush()  # they are printed from C
            log.connect()
            log.begin(ROOM if self._wants_values else 0)
            self._log = log
        except Exception:
            BUS.finding(own_fault("preparing to log the launches of C++ wrappers, which are not recorded"))
            return
        if BUS.profiler:
            self._range = range_if_profiled(CPP_RANGE)
            self._range.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is None:
            return
        if self._range is not None:
            self._range.__exit__(kind, error, trace)
        entries: deque[Entry] = deque()
        summary = b""
        starts: Sequence[int] = ()
        try:
            try:
                if kind is None and not self._wants_values and notes_are_enough():
                    summary, starts = self._log.summary()
                    parts = self._heard.repeated.parts(summary, self._origin)
                    if parts is not None:
                        self._heard.repeated.note(parts, starts, self._inputs)
                        return
                entries.extend(self._log.take())
            finally:
                self._log.end()
        except Exception:
            BUS.finding(own_fault("reading the log of C++ wrappers"))
        # Also where the program failed: what happened before is recorded.
        with contained("recording the launches of C++ wrappers"), range_if_profiled(OWN_RANGE):
            if kind is None and not entries:
                BUS.finding(Finding("unseen-graph", self._unseen))
            past = PastLaunches(self._heard.points, wants_values=self._wants_values, origin=self._origin)
            self._replay(entries, past)
            if summary and past.can_repeat and len(past.launched) == len(starts):
                self._heard.repeated.remember(summary, self._origin, self._wanted, past.launched)

    def _replay(self, entries: deque[Entry], past: PastLaunches) -> None:
        here = BUS.here
        before = here.graph_call, here.in_graph
        try:
            while entries:
                entry = entries.popleft()  # so that its copies can go
                if entry.moment == BEGIN and before[0] < 0:
                    past.begins = self._heard.graph(entry)
                    here.graph_call = BUS.graph_call(past.begins, BUS.phase(), 0, self._inputs)
                    here.in_graph += 1
                past.add(entry)
            past.close()
        finally:
            if here.graph_call != before[0]:
                BUS.graph_call_ended(here.graph_call)
            here.graph_call, here.in_graph = before
