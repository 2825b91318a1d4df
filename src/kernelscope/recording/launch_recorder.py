"""Turns launches into calls: the fingerprints, observers, times and the sink of one recording."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from kernelscope.config import Config
from kernelscope.errors import EndedOnPurpose
from kernelscope.events import Call, Finding, Replay
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import plain
from kernelscope.probes.launch import Capture, Launch
from kernelscope.probes.listener import Kept, Listener
from kernelscope.recording.again.call_replay import Replayer
from kernelscope.recording.again.recheck import Rechecker
from kernelscope.recording.times.call_times import CallTimes
from kernelscope.recording.times.profiler_ranges import ProfilerRanges, as_captured_launch

from .call_filters import CallFilters
from .cuda_graphs import (
    CapturedCall,
    CapturedValues,
    LateCapture,
    MarkedCall,
    MarkedGraph,
    captured_graph,
    not_in_graph,
    prepare_capture,
)
from .launch_values import LaunchValues, readable_returns
from .observers import Late, Observer
from .open_recordings import OPEN
from .ranks.gathered_pieces import GatheredPieces
from .run_info import run_info
from .sinks import DiskSink, MemorySink, Sink
from .torch_state import TorchState


class StopAtCall(SystemExit, EndedOnPurpose):
    """Ends the program after the call that `stop_at` names, with exit status 0."""


class LaunchRecorder(Listener):
    """Records launches while it is open."""

    def __init__(self, config: Config, path: Path | None = None, *, keeps_calls: bool = True) -> None:
        self.config = config
        self.keeps_values = keeps_calls or path is not None
        self.observers: list[Observer] = []
        self.late: Late | None = None
        self.misses_replays = ""  # what observers of values miss when a CUDA graph is replayed
        self.sink: Sink
        if path is None:
            self.sink = MemorySink(run_info(config), keeps_calls=keeps_calls)
        else:
            self.sink = DiskSink(path, run_info(config), config, self._pause)
            if config.values == "save":
                self.observers.append(self.sink.tensor_saver)
        self.replayer = Replayer(config.replay) if config.replay else None
        if self.replayer is not None:
            self.observers.append(self.replayer)
        self.rechecker = None
        if config.recheck:
            self.rechecker = Rechecker(config.recheck, self.sink.run.info.rank, self.finding)
            self.observers.append(self.rechecker)
        self.run = self.sink.run
        self._enter, self._next_key = self.sink.enter, self.sink.next_key
        self.values: LaunchValues | None = None
        self.fingerprinter: Fingerprinter | None = None
        if config.values != "off":
            self.take_values_with(Fingerprinter(level="stats" if config.values == "stats" else "hash"))
        self._times = CallTimes(self.sink, self.finding) if config.time else None
        self.ranges = ProfilerRanges(self.sink) if keeps_calls else None
        self.is_open = False
        self._busy: list[int] = []  # threads that are recording a launch
        self.noted = self.sink.noted  # until it closes
        self._is_paused = config.steps is not None and config.steps[0] > 0
        self._opened_at = 0  # graph calls before this one began before the recording
        self._parents: dict[int, int] = {}  # by graph call: key of the call that executed it
        self._steps = 0
        self._state = TorchState(self.sink)
        self._pieces = GatheredPieces() if path is not None else None  # ranks are compared on disk
        self._kernels = CallFilters(config)
        self._wants = self._kernels.wants

    def take_values_with(self, fingerprinter: Fingerprinter | None) -> None:
        """From now on; with None, no values are taken."""
        self.fingerprinter = fingerprinter
        self.sink.read_slots_with(fingerprinter)
        self.values = LaunchValues(fingerprinter, self.config.verify) if fingerprinter is not None else None

    def before(self, launch: Launch) -> Call | CapturedCall | MarkedCall | LateCapture | None:
        busy, thread = self._busy, threading.get_ident()
        busy.append(thread)
        try:
            return self._before(launch) if self.is_open else None
        finally:
            busy.remove(thread)

    def _before(self, launch: Launch) -> Call | CapturedCall | MarkedCall | LateCapture | None:
        site, point = launch.site, launch.point
        if launch.captured is not None:
            if launch.captured.bodies:
                return None
            if BUS.profiler and self._wants(site.kernel):
                launch.func = as_captured_launch(launch.func)
            if self.late is not None:
                return LateCapture(self.late, lambda why: self.finding(not_in_graph(why)))
            kept: CapturedValues | MarkedGraph | None = launch.captured.kept.get(self)
            if kept is None:
                return None
            if self._wants(site.kernel):
                return kept.before(launch)
            kept.make_way(launch)
            return None
        if self.late is not None:
            self.late.poll()
        if self._is_paused or not self._wants(site.kernel):
            return None
        if self.values is not None and launch.graph_call < 0:
            self._state.note_flags()
        if site.collective:
            self._state.note_place()
        flat = launch.flat
        call = Call(
            key := self._next_key(),
            site,
            launch.graph_call,
            self._steps,
            -1,
            threading.get_ident(),
            launch.stream,
            launch.phase,
            launch.start_ns,
            self._parent(launch.outer, launch.graph_call),
            tuple([plain(flat[i]) for i in point.scalars]) if point.scalars else (),
            launch.storage_ids,
            launch.epochs,
            launch.offsets,
            launch.uninitialised,
        )  # by position: names would cost as much again
        call.key = key
        self._enter(call)
        if self.values is not None:
            call.fingerprinter = self.fingerprinter
            call.pre = self.values.before(launch, began_unseen=0 <= launch.graph_call < self._opened_at)
            call.poison = self.values.poison(launch)
        if self.late is not None:
            self.late.before(call, launch)
        for observer in self.observers:
            observer.before(call, launch)
        if BUS.profiler and self.ranges is not None and self._is_profiled:
            self.ranges.enter(call)
        if self._times is not None:
            self._times.enter(call)
        return call

    def begun(self, call: Call | CapturedCall | MarkedCall | LateCapture) -> None:
        if isinstance(call, Call) and self.ranges is not None:
            self.ranges.leave(call)  # ranges of a thread lie within each other

    def after(self, launch: Launch, call: Call | CapturedCall | MarkedCall | LateCapture) -> None:
        if not isinstance(call, Call):
            call.finish(launch)
            return
        busy, thread = self._busy, threading.get_ident()
        busy.append(thread)
        try:
            if self.is_open:
                self._after(launch, call)
            elif self.ranges is not None:
                self.ranges.leave(call)
        finally:
            busy.remove(thread)

    def _after(self, launch: Launch, call: Call) -> None:
        if self._times is not None:
            self._times.leave(launch, call)
        if self.ranges is not None and self.ranges.opened:
            self.ranges.leave(call)
        try:
            self._complete(launch, call)
        finally:
            is_enqueued = launch.point.cuda_index >= 0 and launch.error is None
            self.sink.leave(call, launch.stream if is_enqueued else None)
        if call.index == self.config.stop_at:
            print(f"kernelscope: stopping after call {call.index} (--stop-at)", file=sys.stderr)
            raise StopAtCall(0)

    def _complete(self, launch: Launch, call: Call) -> None:
        call.site = launch.site
        if launch.error is not None:
            call.error = f"{type(launch.error).__name__}: {launch.error}"
            return
        if launch.is_tracked and (returned := readable_returns(launch)):
            made = launch.storages[len(launch.point.tensors) :]
            call.storages += tuple(s.id for s in made)
            call.epochs += tuple(s.epoch - 1 for s in made)
            call.offsets += tuple(int(t.storage_offset()) for t in returned.values())
        elif launch.is_tracked and launch.point.is_pending:
            begun = [BUS.storages.of(tensor) for tensor in launch.returned]  # its wait has the same memory
            call.storages += tuple(s.id for s in begun)
            call.epochs += tuple(s.epoch for s in begun)
            call.offsets += tuple(int(t.storage_offset()) for t in launch.returned)
        if call.pre is not None and self.values is not None and call.fingerprinter is self.fingerprinter:
            call.post = self.values.after(launch, call.pre)
        if self.late is not None:
            self.late.after(call, launch)
        for observer in self.observers:
            observer.after(call, launch)
        if self._pieces is not None and self.fingerprinter is not None and call.post is not None:
            self._pieces.add(launch, call, self.fingerprinter)

    # -- CUDA graphs -----------------------------------------------------------------------------------

    def capturing(self) -> Kept | None:
        return prepare_capture(
            self.late,
            self.fingerprinter,
            self.config.verify,
            self.finding,
            marked=self.config.mark_graphs,
        )

    def replayed(self, capture: Capture, stream: int, graph_call: int) -> None:
        if self._is_paused:
            return
        if self.late is not None:
            self.late.poll()
        if self.misses_replays:
            self.finding(Finding("values-in-cuda-graph", self.misses_replays))
        graph = capture.graphs.get(self)
        if graph is None:
            graph = capture.graphs[self] = captured_graph(capture, self, self._wants)
        if not graph.launches:
            return
        kept = capture.kept.get(self)
        first = kept.fingerprints.replayed() if isinstance(kept, CapturedValues) else -1
        if first < 0 and self.values is not None:
            self.finding(not_in_graph("it was captured before this recording wanted values"))
        self.sink.replayed(
            Replay(
                graph,
                graph_call,
                self._steps,
                capture.replays,
                threading.get_ident(),
                stream,
                time.monotonic_ns(),
                first,
                self.fingerprinter,
            )
        )

    # -- its own work ----------------------------------------------------------------------------------

    @property
    def _is_profiled(self) -> bool:
        """Whether the profiler's ranges have the indices of this run: of several, the one opened first."""
        first: object = next((each for each in list(OPEN) if each.ranges is not None), None)
        return first is self

    def finding(self, finding: Finding) -> None:
        if not self.sink.has_failed and finding not in self.noted:
            self.noted.append(finding)
            self.sink.finding(finding)

    def _pause(self, paused: bool = True) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            BUS.refresh()

    def _parent(self, outer: Launch | None, graph_call: int) -> int:
        """Key of the call that a launch happens inside of, or the graph that it belongs to."""
        if outer is not None:
            call = outer.calls.get(self)
            return call.key if isinstance(call, Call) else -1
        return self._parents.get(graph_call, -1)
