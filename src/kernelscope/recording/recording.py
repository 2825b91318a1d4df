"""Opens probes, fingerprinter and sink, and turns launches into calls; closes all in reverse."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from kernelscope.compiler_control.forced_settings import STAGE_SETTINGS
from kernelscope.config import Config
from kernelscope.events import COMPACT_CALL, Call, CompactCall, Finding, Graph, GraphCall, Kernel
from kernelscope.fingerprint.captured import CapturedFingerprints
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.probes import PROBES
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.compile_settings import changed_settings
from kernelscope.probes.cuda_graphs.tree_graphs import drop_tree_graphs
from kernelscope.probes.describe import plain
from kernelscope.probes.launch import Capture, Launch
from kernelscope.probes.listener import GraphPlan, GraphReadings, Kept, Listener, ignore
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.torch_flags import Switches
from kernelscope.recording.times.call_times import CallTimes
from kernelscope.recording.times.profiler_ranges import ProfilerRanges
from kernelscope.stages.records import Record
from kernelscope.store.memory_run import MemoryRun

from .busy_threads import wait_for_others
from .call_replay import Replayer
from .launch_values import CapturedCall, CapturedValues, LaunchValues, readable_returns
from .observers import InputObserver, Late, LateCapture, Observer
from .open_recordings import OPEN, watch_forks
from .planning import last_calls, last_readings, plan_graph
from .run_info import run_info
from .sinks import DiskSink, MemorySink, Sink


class StopAtCall(SystemExit):
    """Ends the program where the recording was asked to stop; a plain exit to everybody else."""


class Recording(Listener):
    """Turns launches into the calls of one run, in memory or in a new folder on disk."""

    def __init__(self, config: Config, path: Path | None = None, *, keeps_calls: bool = True) -> None:
        self.config = config
        self.observers: list[Observer] = []
        self.input_observers: list[InputObserver] = []
        self.late: Late | None = None
        self.misses_replays = ""  # what observers of values miss when a CUDA graph is replayed
        self.sink: Sink
        if path is None:
            self.sink = MemorySink(run_info(config), keeps_calls=keeps_calls)
        else:
            self.sink = DiskSink(path, run_info(config), config, self._pause)
            if config.values == "save":
                self.observers.append(self.sink.tensor_saver(config))
        self.replayer = Replayer(config.replay) if config.replay else None
        if self.replayer is not None:
            self.observers.append(self.replayer)
        self.run = self.sink.run
        self._enter, self._next_key = self.sink.enter, self.sink.next_key
        self.values: LaunchValues | None = None
        self.fingerprinter: Fingerprinter | None = None
        if config.values != "off":
            self.take_values_with(Fingerprinter(level="stats" if config.values == "stats" else "hash"))
        self._times = CallTimes(self.sink, self.finding) if config.time else None
        self.ranges = ProfilerRanges(self.sink) if keeps_calls else None
        self.is_open = False
        self._looking: list[int] = []  # threads that are looking at a launch
        self.noted = self.sink.noted  # until it closes
        self._is_paused = config.steps is not None and config.steps[0] > 0
        self._opened_at = 0  # graph calls before this one began before the recording
        self._parents: dict[int, int] = {}  # by graph call: key of the call that executed it
        self._steps = 0
        self._switches = Switches()
        self._counts_steps_itself = False
        self._wanted: dict[int, bool] = {}
        self._settings: dict[str, dict[str, Any]] = {}  # of torch, as they were noted last
        self._graphs: dict[int, Graph] = {}  # as this run numbers them, by the process's number

    def take_values_with(self, fingerprinter: Fingerprinter | None) -> None:
        """From now on; with None, no values are taken."""
        self.fingerprinter = fingerprinter
        self.sink.read_slots_with(fingerprinter)
        self.values = LaunchValues(fingerprinter, self.config.verify) if fingerprinter is not None else None

    def open(self) -> None:
        watch_forks()
        try:
            PROBES.acquire(operators=self.config.ops == "all", strict=self.config.strict)
        except BaseException:
            self.sink.close()
            raise
        self.sink.open()
        self.noted = self.sink.noted
        self._looking = []  # a process that forked it may have had other threads
        self.is_open = True
        if self._times is not None:
            self._times.start()
        OPEN.append(self)
        self.sink.use_steady_sites()
        self._opened_at = BUS.attach(self)
        if self.fingerprinter is not None and self.fingerprinter.slow_because:
            self.finding(Finding("slow-values", self.fingerprinter.slow_because))
        if self.config.stages:
            self._open_stages()
        self._note_settings()
        self.sink.use_steady_sites()  # the last of the others may have closed in between
        if self.config.recapture:
            drop_tree_graphs(lambda graph: True)

    def _open_stages(self) -> None:
        for missing in STAGE_SETTINGS.acquire(fresh=self.config.fresh) + PROBES.acquire_stages():
            self.finding(Finding("stage-hook-missing", f"some stages will be missing: {missing}"))
        if self.config.fresh and not STAGE_SETTINGS.is_fresh:
            why = "another open recording of stages allows graphs to be loaded from caches"
            self.finding(Finding("not-fresh", f"graphs may not be compiled again: {why}"))

    def close(self) -> None:
        if not self.is_open:  # a forked child has closed its copy already
            return
        self.is_open = False
        OPEN.remove(self)
        self._note_settings()
        if self.config.stages:
            PROBES.release_stages()
            STAGE_SETTINGS.release()
        BUS.detach(self)
        wait_for_others(self._looking)
        try:
            self._say_when_filtered_out()
        finally:
            PROBES.release(operators=self.config.ops == "all")
        if self._times is not None:
            self._times.stop()
        if self.replayer is not None:
            self.sink.set_metadata("replays", [asdict(replay) for replay in self.replayer.replays.values()])
        self.sink.close()

    # -- launches --------------------------------------------------------------------------------------

    def before(self, launch: Launch) -> Call | CapturedCall | LateCapture | None:
        looking, thread = self._looking, threading.get_ident()
        looking.append(thread)
        try:
            return self._before(launch) if self.is_open else None
        finally:
            looking.remove(thread)

    def _before(self, launch: Launch) -> Call | CapturedCall | LateCapture | None:
        site, point = launch.site, launch.point
        if launch.captured is not None:
            if self.late is not None:
                return LateCapture(self.late, lambda why: self.finding(_not_in_graph(why)))
            kept = launch.captured.kept.get(self)
            return kept.before(launch) if kept is not None and self._wants(site.kernel) else None
        if self.late is not None:
            self.late.poll()
        if self._is_paused or not self._wants(site.kernel):
            return None
        if self.values is not None and launch.graph_call < 0:
            self._note_switches()
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
        for observer in self.observers:
            observer.before(call, launch)
        if BUS.profiler and self.ranges is not None and self._is_profiled:
            self.ranges.enter(call)
        if self._times is not None:
            self._times.enter(call)
        return call

    def after(self, launch: Launch, call: Call | CapturedCall | LateCapture) -> None:
        if not isinstance(call, Call):
            call.finish(launch)
            return
        looking, thread = self._looking, threading.get_ident()
        looking.append(thread)
        try:
            if self.is_open:
                self._after(launch, call)
            elif self.ranges is not None:
                self.ranges.leave(call)
        finally:
            looking.remove(thread)

    def _after(self, launch: Launch, call: Call) -> None:
        if self._times is not None:
            self._times.leave(launch, call)
        if self.ranges is not None and self.ranges.opened:
            self.ranges.leave(call)
        try:
            self._look_after(launch, call)
        finally:
            is_enqueued = launch.point.cuda_index >= 0 and launch.error is None
            self.sink.leave(call, launch.stream if is_enqueued else None)
        if call.index == self.config.stop_at:
            self._stop(call.index)

    def _look_after(self, launch: Launch, call: Call) -> None:
        call.site = launch.site
        if launch.error is not None:
            call.error = f"{type(launch.error).__name__}: {launch.error}"
            return
        if launch.is_tracked and (returned := readable_returns(launch)):
            made = launch.storages[len(launch.point.tensors) :]
            call.storages += tuple(s.id for s in made)
            call.epochs += tuple(s.epoch - 1 for s in made)
            call.offsets += tuple(int(t.storage_offset()) for t in returned.values())
        if call.pre is not None and self.values is not None and call.fingerprinter is self.fingerprinter:
            call.post = self.values.after(launch, call.pre)
        if self.late is not None:
            self.late.after(call, launch)
        for observer in self.observers:
            observer.after(call, launch)

    # -- CUDA graphs -----------------------------------------------------------------------------------

    def capturing(self) -> Kept | None:
        if self.late is not None:
            self.late.prepare(torch.device("cuda", torch._C._cuda_getDevice()))
            return self.late
        if self.fingerprinter is None:
            return None
        device = torch.device("cuda", torch._C._cuda_getDevice())
        fingerprints = CapturedFingerprints(self.fingerprinter, device)
        return CapturedValues(fingerprints, self.config.verify, lambda why: self.finding(_not_in_graph(why)))

    def replayed(
        self, capture: Capture, epochs: Sequence[tuple[int, ...]], stream: int, graph_call: int
    ) -> None:
        if self._is_paused:
            return
        if self.late is not None:
            self.late.poll()
        if self.misses_replays:
            self.finding(Finding("values-in-cuda-graph", self.misses_replays))
        found = capture.kept.get(self)
        kept: CapturedValues | None = found if isinstance(found, CapturedValues) else None
        slots = kept.fingerprints.replayed() if kept is not None else None
        if slots is None and self.values is not None:
            self.finding(_not_in_graph("it was captured before this recording wanted values"))
        for template, seen in zip(capture.templates, epochs, strict=True):
            if not self._wants(template.site.kernel):
                continue
            call = Call(
                key := self._next_key(),
                template.site,
                graph_call,
                self._steps,
                capture.replays,
                threading.get_ident(),
                stream,
                template.phase,
                time.monotonic_ns(),
                scalars=template.scalars,
                storages=tuple([s.id for s in template.storages]),
                epochs=seen,
                offsets=template.offsets,
                uninitialised=template.uninitialised,
                key=key,
            )
            own = template.calls.get(self)
            if kept is not None and slots is not None and own is not None:
                call.fingerprinter = kept.fingerprints.fingerprinter
                call.pre, call.post, call.poison = (
                    None if rows is None else {i: slots[row] for i, row in rows.items()}
                    for rows in (own.pre, own.post, own.poison)
                )
            self._enter(call)
            self.sink.leave(call, stream)

    # -- what is the same each time --------------------------------------------------------------------

    @property
    def accepts_compact(self) -> bool:
        config = self.config
        if self._is_paused:
            return True
        looks = config.values != "off" or self.late is not None
        whole = not looks and not (config.kernel or config.kind or self.observers)
        # On disk the ring measures how long a noted call takes on the host.
        times = self._times
        timed = times is not None and (times.on_device is not None or not self.notes_have_ends)
        return whole and not timed and config.stop_at is None

    @property
    def _is_profiled(self) -> bool:
        """Whether the profiler's ranges have the indices of this run: of several, the one opened first."""
        return next((each for each in list(OPEN) if each.ranges is not None), None) is self

    @property
    def notes_have_ends(self) -> bool:
        return self.sink.wants_ends

    @property
    def wants_values(self) -> bool:
        looks = self.values is not None or self.late is not None or bool(self.observers)
        return looks and not self._is_paused

    @property
    def planner(self) -> Recording | None:
        """Itself, if from a graph's first execution it is known what to fingerprint in the next ones."""
        config = self.config
        whole = config.verify in ("", "reread") and not (config.kernel or config.kind or self.observers)
        plain_run = isinstance(self.sink, MemorySink) and not config.time and config.stop_at is None
        return (
            self
            if (config.values in ("hash", "stats") or self.late is not None)
            and whole
            and plain_run
            and not self._is_paused
            else None
        )

    @property
    def _memory(self) -> MemoryRun:
        """The run, as graphs are planned only for runs in memory."""
        assert isinstance(self.run, MemoryRun)
        return self.run

    @property
    def plans_lazily(self) -> bool:
        return self.late is not None

    def readings(self, graph_call: int, launches: int) -> GraphReadings | None:
        if self.late is not None:
            calls = last_calls(self._memory, graph_call, launches)
            return self.late.readings(calls) if calls is not None else None
        if self.fingerprinter is None or self.fingerprinter.fallback_count:
            return None
        return last_readings(self.fingerprinter, self._memory, graph_call, launches)

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> GraphPlan | None:
        if self.late is not None:
            return self.late.plan(readings, flushes)
        assert self.fingerprinter is not None
        return plan_graph(self.fingerprinter, self._memory, readings, flushes)

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        if self._is_paused:
            return ignore
        whole = self.accepts_compact or self.planner is not None
        note = self.sink.note if whole else self._note_if_wanted
        if BUS.profiler and self.ranges is not None and self._is_profiled:
            return self.ranges.around(note)
        return note

    def _note_if_wanted(self, entry: CompactCall) -> Any:
        """This recording opened while a graph was executing under one that needs notes only."""
        steady = BUS.steady_sites.get(COMPACT_CALL.unpack(entry)[0])
        return self.sink.note(entry) if steady is not None and self._wants(steady.site.kernel) else None

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        if self.ranges is not None:
            self.ranges.failed()
        if self.is_open:
            self.sink.note_failed(graph_call, line, f"{type(error).__name__}: {error}")

    # -- what happens between launches -----------------------------------------------------------------

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any] = ()) -> None:
        if self.late is not None:
            self.late.poll()
        graph = graph_call.graph
        own = self._graphs.get(graph.id)
        if own is None:
            own = self._graphs[graph.id] = replace(graph, id=len(self._graphs))  # numbered within the run
            self._note_settings()  # those that it was compiled with
        parent = self._parent(BUS.here.launch, -1)
        if parent >= 0:
            self._parents[graph_call.index] = parent
        execution = replace(graph_call, graph=own, step=self._steps, parent=parent)
        self.sink.graph_call(execution, is_paused=self._is_paused)
        if self.values is not None:
            self._note_switches()
        if self.input_observers and not self._is_paused:
            self._show_inputs(execution, inputs)

    def _note_switches(self) -> None:
        if (switches := self._switches.changed()) is not None:
            self.sink.mark("switches", switches)

    def _show_inputs(self, execution: GraphCall, inputs: Sequence[Any]) -> None:
        for observer in self.input_observers:
            try:
                unseen(observer.graph_inputs, execution, inputs)
            except Exception:
                self.finding(own_fault(f"looking at the inputs of graph {execution.graph.name}"))

    def mark(self, kind: str, text: str) -> None:
        self.sink.mark(kind, text)

    def finding(self, finding: Finding) -> None:
        if not self.sink.has_failed and finding not in self.noted:
            self.noted.append(finding)
            self.sink.finding(finding)

    def _note_settings(self) -> None:
        found = changed_settings()
        if found != self._settings:
            self._settings = found
            self.sink.settings(found)

    def compiled(self, record: Record) -> None:
        if self.config.stages:
            self.sink.compiled(record)

    def step(self, *, by_user: bool = False) -> None:
        if by_user and not self._counts_steps_itself:
            self._counts_steps_itself, self._steps = True, 0
        if by_user or not self._counts_steps_itself:
            self._steps += 1
            self.mark("step", str(self._steps))
            if self.config.steps is not None and not self.sink.has_failed:
                first, end = self.config.steps
                self._pause(not first <= self._steps < end)

    def _pause(self, paused: bool = True) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            BUS.refresh()

    def _stop(self, index: int) -> None:
        print(f"kernelscope: call {index} is over; the program ends here, as asked", file=sys.stderr)
        raise StopAtCall(0)

    # -- its own work ----------------------------------------------------------------------------------

    def _parent(self, outer: Launch | None, graph_call: int) -> int:
        """Key of the call that a launch happens inside of, or the graph that it belongs to."""
        if outer is not None:
            call = outer.calls.get(self)
            return call.key if isinstance(call, Call) else -1
        return self._parents.get(graph_call, -1)

    def _wants(self, kernel: Kernel) -> bool:
        wanted = self._wanted.get(kernel.id)
        if wanted is None:
            config = self.config
            wanted = self._wanted[kernel.id] = (
                (config.ops == "all" or kernel.kind != "op")
                and (not config.kind or kernel.kind in config.kind)
                and (not config.kernel or any(fnmatchcase(kernel.name, glob) for glob in config.kernel))
            )
        return wanted

    def _say_when_filtered_out(self) -> None:
        config = self.config
        if (config.kernel or config.kind) and not len(self.run) and self._wanted:
            self.finding(
                Finding(
                    "nothing-matched",
                    f"{len(self._wanted)} kernels ran and none matched kernel={list(config.kernel)}, kind="
                    f"{list(config.kind)}; kernel takes globs of names, kind triton, cpp, extern, op or gcu",
                )
            )


def _not_in_graph(why: str) -> Finding:
    return Finding("values-in-cuda-graph", f"calls replayed from a CUDA graph have no hashes: {why}")
