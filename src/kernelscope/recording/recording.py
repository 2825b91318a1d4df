"""Opens probes, fingerprinter and sink, and turns launches into calls; closes all in reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kernelscope.compiler_control.forced_settings import STAGE_SETTINGS
from kernelscope.config import Config
from kernelscope.errors import EndedOnPurpose
from kernelscope.events import COMPACT_CALL, CompactCall, Finding, Graph, GraphCall
from kernelscope.probes.bus import BUS
from kernelscope.probes.cuda_graphs.tree_graphs import drop_tree_graphs
from kernelscope.probes.dynamo.eval_frames import EarlierFrames, current_stance
from kernelscope.probes.dynamo.nothing_compiled import NOTHING_RAN, nothing_compiled, ran_in_eager
from kernelscope.probes.eager.unseen_operators import WATCH
from kernelscope.probes.listener import ignore
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.patching import newer_than_tested
from kernelscope.probes.probe_list import PROBES, check_gil
from kernelscope.probes.python_wrappers.unseen_graphs import FIRST_GRAPH, InChildren, begun_before
from kernelscope.stages.records import Record

from .audit.audit_session import AuditSession
from .busy_threads import STILL_BUSY, wait_for_others
from .launch_recorder import LaunchRecorder
from .observers import InputObserver
from .open_recordings import OPEN, watch_forks
from .planning import RecordingPlanner


class Recording(LaunchRecorder):
    """Turns launches into the calls of one run, in memory or in a new folder on disk."""

    def __init__(
        self,
        config: Config,
        path: Path | None = None,
        *,
        keeps_calls: bool = True,
        says_why_empty: bool = False,  # of use where a user reads the run
    ) -> None:
        check_gil()  # before anything is built or written for it
        super().__init__(config, path, keeps_calls=keeps_calls)
        self._says_why_empty = says_why_empty
        self.input_observers: list[InputObserver] = []
        self.in_children = InChildren()
        self._counts_steps_itself = False
        self._missed_graphs = False  # one ran while it was paused
        self._raised: set[int] = set()  # graph calls
        self._graph_threads: set[int] = set()
        self._graphs: dict[int, Graph] = {}  # as this run numbers them, by the process's number
        self._audit = AuditSession(self.finding, config.ops) if config.audit else None
        self._planner = RecordingPlanner(self.sink, lambda: (self.late, self.fingerprinter))

    def open(self) -> None:
        watch_forks()
        begun = None if PROBES.are_used else begun_before()
        try:
            off = PROBES.acquire(operators=self.config.ops == "all", strict=self.config.strict)
        except BaseException:
            self.sink.close()
            raise
        self._unseen_before = WATCH.counts()
        self.sink.open()
        self.noted = self.sink.noted
        self._busy = []  # a process that forked it may have had other threads
        self.is_open = True
        if self._times is not None:
            self._times.start()
        OPEN.append(self)
        self.sink.use_steady_sites()
        self._opened_at = BUS.attach(self)
        self._dynamo_before, self._stance_before = PROBES.tried.mark(), current_stance()
        self._earlier = EarlierFrames.so_far()
        for kind, notes in (("probe-off", off), ("untested-version", newer_than_tested())):
            for note in notes:
                self.finding(Finding(kind, note))
        if begun is not None:
            self.finding(begun)
        if self.fingerprinter is not None and self.fingerprinter.slow_because:
            self.finding(Finding("slow-values", self.fingerprinter.slow_because))
        if self.config.stages:
            self._open_stages()
        self._state.note_settings()
        self._state.note_place()
        self.sink.use_steady_sites()  # the last of the others may have closed in between
        if self.config.recapture:
            drop_tree_graphs(lambda graph: True)
        if self._audit is not None:
            with self._contained("starting the audit's profiler"):
                self._audit.start()

    def _open_stages(self) -> None:
        # The settings last: a hook that raises leaves none of them forced.
        for missing in PROBES.acquire_stages() + STAGE_SETTINGS.acquire(fresh=self.config.fresh):
            self.finding(Finding("stage-hook-missing", f"some stages will be missing: {missing}"))
        if self.config.fresh and not STAGE_SETTINGS.is_fresh:
            why = "another open recording of stages allows graphs to be loaded from caches"
            self.finding(Finding("not-fresh", f"graphs may not be compiled again: {why}"))

    def close(self) -> None:
        if not self.is_open:  # a forked child has closed its copy already
            FIRST_GRAPH.remove()
            return
        if self._audit is not None:
            with self._contained("ending the audit's profiler"):
                self._audit.stop()
        with self._contained("ending the collectives that are still running"):
            BUS.give_up(self)
        self.is_open = False
        OPEN.remove(self)
        with self._contained("reading the compiler's settings"):
            self._state.note_settings()
        if self.config.stages:
            with self._contained("restoring the compiler's settings"):
                STAGE_SETTINGS.release()
                PROBES.release_stages()
        BUS.detach(self)
        if not wait_for_others(self._busy):
            self.finding(STILL_BUSY)
        with self._contained("asking what forked children ran"):
            if (unseen_in_child := self.in_children.finding) is not None:
                self.finding(unseen_in_child)
        with self._contained("counting operators on other threads"):
            self._say_what_other_threads_ran()
        with self._contained("finding out why nothing was recorded"):
            self._say_why_nothing()
        try:
            PROBES.release(operators=self.config.ops == "all")  # says where it is closed on a wrong thread
        finally:
            with self._contained("measuring the last times"):
                if self._times is not None:
                    self._times.stop()
            if self.replayer is not None:
                replays = [asdict(replay) for replay in self.replayer.replays.values()]
                self.sink.set_metadata("replays", replays)
            if self.rechecker is not None:
                self.sink.set_metadata("recheck", self.rechecker.summary())
            with self._contained("holding the profiler's events against the calls"):
                self._keep_audit()
            self.sink.close()

    def _say_what_other_threads_ran(self) -> None:
        if self.config.ops == "all":
            for finding in WATCH.findings(self._unseen_before, self._graph_threads):
                self.finding(finding)

    def _keep_audit(self) -> None:
        audit = self._audit.result(self.run, self._raised) if self._audit is not None else None
        if audit is not None:
            self.sink.audited(audit)

    @contextmanager
    def _contained(self, doing: str) -> Iterator[None]:
        """One part of closing: where it fails, that is a finding, and the other parts follow."""
        try:
            yield
        except Exception:
            self.finding(own_fault(doing))

    def _say_why_nothing(self) -> None:
        frames, stances, turned_off = PROBES.tried.since(self._dynamo_before)
        if self._stance_before != "default":
            stances = [self._stance_before, *stances]
        if len(self.run):
            if self._says_why_empty and self.config.ops != "all":
                graphs = self._graphs.values()
                recorded = None if self._missed_graphs else {graph.compile_id for graph in graphs}
                for finding in ran_in_eager(frames, stances, recorded):
                    self.finding(finding)
            return
        nothing = self._kernels.nothing_matched(self._steps, ran_in_others=self._missed_graphs)
        # Where there are findings, something else is the reason.
        elsewhere = self._missed_graphs or self._raised or self.noted
        if nothing is None and self._says_why_empty and not elsewhere:
            try:
                if self.config.ops == "all" and not frames:
                    nothing = NOTHING_RAN
                else:
                    nothing = nothing_compiled(frames, self._earlier, stances, turned_off, len(self._graphs))
            except Exception:
                nothing = own_fault("finding out why nothing compiled ran")
        if nothing is not None:
            self.finding(nothing)

    # -- for who asks while it is open ------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of the current step."""
        return self._steps

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def graph_count(self) -> int:
        """Compiled graphs that were called so far."""
        return len(self._graphs)

    @property
    def is_first_rank(self) -> bool:
        """Whether it is rank 0 of several, which have been in touch: a helper process of a rank has not."""
        info = self.run.info
        return info.rank == 0 and info.world_size > 1 and self._state.has_met_others

    # -- what is the same each time --------------------------------------------------------------------

    @property
    def accepts_compact(self) -> bool:
        config = self.config
        if self._is_paused:
            return True
        wants = config.values != "off" or self.late is not None
        whole = not wants and not (config.kernel or config.kind or self.observers)
        # On disk the ring measures how long a noted call takes on the host.
        times = self._times
        timed = times is not None and (times.on_device is not None or not self.notes_have_ends)
        return whole and not timed and config.stop_at is None

    @property
    def notes_have_ends(self) -> bool:
        return self.sink.wants_ends

    @property
    def wants_values(self) -> bool:
        looks = self.values is not None or self.late is not None or bool(self.observers)
        return looks and not self._is_paused

    @property
    def planner(self) -> RecordingPlanner | None:
        """If a graph's first call shows what to fingerprint in the next ones."""
        config = self.config
        whole = config.verify in ("", "reread") and not (config.kernel or config.kind or self.observers)
        takes = config.values in ("hash", "stats") or self.late is not None
        is_plain = not config.time and config.stop_at is None and not self._is_paused
        return self._planner if takes and whole and is_plain else None

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        if self._is_paused:
            return ignore
        return self._wanted_notes(self.sink.note)

    @property
    def note_with_end(self) -> Callable[[CompactCall], Any]:
        if self._is_paused or not (BUS.profiler and self.ranges is not None and self._is_profiled):
            return self.note
        return self.ranges.around(self._wanted_notes(self.sink.note_with_end))

    def _wanted_notes(self, note: Callable[[CompactCall], Any]) -> Callable[[CompactCall], Any]:
        """Not all are, where it opened while a graph was executing under one that needs notes only."""
        if self.accepts_compact or self.planner is not None:
            return note

        def note_if_wanted(entry: CompactCall) -> Any:
            steady = BUS.steady_sites.get(COMPACT_CALL.unpack(entry)[0])
            return note(entry) if steady is not None and self._wants(steady.site.kernel) else None

        return note_if_wanted

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        if self.ranges is not None:
            self.ranges.failed()
        self._raised.add(graph_call)
        if self.is_open and not isinstance(error, EndedOnPurpose):
            self.sink.note_failed(graph_call, line, f"{type(error).__name__}: {error}")

    # -- what happens between launches -----------------------------------------------------------------

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any] = ()) -> None:
        if self.late is not None:
            self.late.poll()
        graph = graph_call.graph
        self._missed_graphs |= self._is_paused
        own = self._graphs.get(graph.id)
        if own is None:
            own = self._graphs[graph.id] = replace(graph, id=len(self._graphs))  # numbered within the run
            self._state.note_settings()  # those that it was compiled with
            self._state.note_place()
        parent, outer = -1, BUS.here.launch
        if outer is not None:
            parent = self._parents[graph_call.index] = self._parent(outer, -1)
        index, thread, stream, phase = (
            graph_call.index,
            graph_call.thread,
            graph_call.stream,
            graph_call.phase,
        )
        self._graph_threads.add(thread)
        own_graph_call = GraphCall(index, own, thread, stream, phase, self._steps, parent)
        self.sink.graph_call(own_graph_call, is_paused=self._is_paused)
        if self.values is not None:
            self._state.note_flags()
        if self.input_observers and not self._is_paused:
            self._show_inputs(own_graph_call, inputs)

    def graph_call_ended(self, graph_call: int) -> None:
        kept = BUS.capture.kept.get(self) if BUS.capture is not None else None
        if kept is not None:
            kept.end()  # what comes next may be code that is not observed
        self.sink.graph_call_ended(graph_call)

    def _show_inputs(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        for observer in self.input_observers:
            try:
                unseen(observer.graph_inputs, graph_call, inputs)
            except Exception:
                self.finding(own_fault(f"reading the inputs of graph {graph_call.graph.name}"))

    def mark(self, kind: str, text: str) -> None:
        self.sink.mark(kind, text)

    def compiled(self, record: Record) -> None:
        if self.config.stages:
            self.sink.compiled(record)

    def begin_step(self, number: int) -> None:
        """A step with this number begins, as a trainer counts; `optimizer.step()` does not count any more."""
        self._counts_steps_itself, self._steps = True, number
        self.mark("step", str(number))
        self.pause(False)

    def end_step(self) -> None:
        """What follows belongs to no step, such as an evaluation, and is not recorded."""
        self.pause(True)

    def pause(self, is_paused: bool) -> None:
        """Record nothing for a while, or go on; a disk that failed stays paused."""
        if is_paused or not self.sink.has_failed:
            self._pause(is_paused)

    def step(self, *, by_user: bool = False) -> None:
        if by_user and not self._counts_steps_itself:
            self._counts_steps_itself, self._steps = True, 0
        if by_user or not self._counts_steps_itself:
            self._steps += 1
            self._state.note_place()
            if self.values is not None and self._state.has_met_others:
                with self._contained("noting the states of random number generators"):
                    self._state.note_generators(self._steps)
            self.mark("step", str(self._steps))
            if self.config.steps is not None and not self.sink.has_failed:
                first, end = self.config.steps
                self._pause(not first <= self._steps < end)
