"""record(): opens probes, fingerprinter and sink; closes them in reverse."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .config import Config, strict_from_environment, strings
from .events import BRIEF, Brief, Call, Finding, Graph, GraphCall, Kernel, Mark
from .fingerprint.fingerprinter import Fingerprinter
from .fingerprint.hashes import poison, quiet
from .fingerprint.plans import CannotPlan, plan
from .fingerprint.versions import Tensors, Versions
from .launch_versions import readable_returns, versions_after, versions_before
from .planning import PlannedGraph, readings_of
from .probes import PROBES
from .probes.bus import BUS, own_fault
from .probes.describe import plain
from .probes.launch import GraphReadings, Launch, Template
from .run import Run, StoredRun, folder
from .run.tensors import TensorSaver
from .run.writer import Writer
from .run_info import run_info
from .timing import DeviceTimes

if TYPE_CHECKING:
    from _typeshed import SupportsNext

_NO_VALUES_IN_REPLAYS = Finding(
    "values-in-cuda-graph",
    "calls replayed from a CUDA graph have no hashes; to see their values, run without CUDA graphs",
)


class Observer(Protocol):
    """Wants more of each launch than a recording keeps: the live arguments, before and after."""

    def before(self, call: Call, launch: Launch) -> None: ...
    def after(self, call: Call, launch: Launch) -> None: ...


class StopAtCall(SystemExit):
    """Ends the program where the recording was asked to stop; a plain exit to everybody else."""


class Recording:
    """Turns launches into the calls of one run, in memory or in a new folder on disk."""

    def __init__(self, config: Config, path: Path | None = None) -> None:
        self.config = config
        info = run_info(config)
        self.writer: Writer | None = None
        self.run: Run = Run(info)
        self.observers: list[Observer] = []
        self._keys: SupportsNext[int] = itertools.count()
        if path is not None:
            self.writer = Writer(path, info, timed=config.time, keep_last=config.keep_last)
            self.writer.on_failure = self._pause
            self.run = StoredRun(path, info, self.writer)
            self._keys = self.writer.flight
            self.writer.flight.familiar = lambda number: BUS.familiars.get(number)
            if torch.version.cuda is not None:  # not is_available(), after which a fork cannot use the GPU
                self.writer.watch_streams(torch._C._cuda_getCurrentRawStream)
            if config.values == "save":
                self.observers.append(TensorSaver(self.writer, config.max_tensors, _unrecorded))
        self.versions: Versions | None = None
        if config.values != "off":
            self.versions = Versions(Fingerprinter(level="stats" if config.values == "stats" else "hash"))
        self.run.hasher = self.versions.hasher if self.versions is not None else None
        self._times = DeviceTimes(self._took) if config.time and torch.cuda.is_available() else None
        self._timed: dict[int, Call] = {}  # of a run in memory, until their times are known
        self.is_open = False
        self._is_paused = config.steps is not None and config.steps[0] > 0
        self._opened_at = 0  # graph calls before this one began before the recording
        self._parents: dict[int, int] = {}  # by graph call: key of the call that executed it
        self._steps = 0
        self._counts_steps_itself = False
        self._wanted: dict[int, bool] = {}
        self._graphs: dict[int, Graph] = {}  # as this run numbers them, by the process's number

    def open(self) -> None:
        _watch_forks()
        try:
            PROBES.acquire(operators=self.config.ops == "all", strict=self.config.strict)
        except BaseException:
            if self.writer is not None:
                self.writer.close()
            raise
        self.is_open = True
        self._start_times()
        _OPEN.append(self)
        self.run.familiars = BUS.familiars
        self._opened_at = BUS.attach(self)
        self.run.familiars = BUS.familiars  # the last of the others may have closed in between

    def close(self) -> None:
        if not self.is_open:  # a forked child has closed its copy already
            return
        self.is_open = False
        _OPEN.remove(self)
        BUS.detach(self)
        try:
            self._say_when_filtered_out()
        finally:
            PROBES.release(operators=self.config.ops == "all")
        if self._times is not None:
            self._stop_times(self._times)
        if self.writer is not None:
            self.run.close()
            self.writer.close()

    # -- what the bus says -----------------------------------------------------------------------------

    def before(self, launch: Launch) -> Call | None:
        site, point = launch.site, launch.point
        if launch.captured or self._is_paused or not self._wants(site.kernel):
            return None  # during CUDA-graph capture nothing executes; replays do
        flat = launch.flat
        call = Call(
            key := next(self._keys),
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
            launch.dead,
        )  # by position: names would cost as much again
        call.key = key
        if self.writer is None:
            self.run.entries.append(call)
        else:
            self.writer.enter(call)
        if self.versions is not None:
            call.hasher = self.versions.hasher
            reread = self.config.verify == "reread"
            found = versions_before(launch)
            if 0 <= launch.graph_call < self._opened_at:
                # The graph began before the recording: what it allocated may hold nothing yet.
                found = {i: one for i, one in found.items() if i not in point.written}
            call.pre = self._take(launch, found, reread=reread)
            if self.config.verify == "poison" and launch.dead:
                call.poison = self._poison(launch)
        for observer in self.observers:
            observer.before(call, launch)
        if self.config.time:
            call.start_ns = time.monotonic_ns()  # after our own work
            if self._times is not None:
                self._times.enter(call.index)
        return call

    def after(self, launch: Launch, call: Call) -> None:
        if self.config.time:
            self._note_time(launch, call)
        try:
            self._look_after(launch, call)
        finally:
            if self.writer is not None:
                if launch.point.cuda_index >= 0 and launch.error is None:
                    self.writer.launched(call.index, launch.stream)
                self.writer.leave(call)
        if call.index == self.config.stop_at:
            self._stop(call.index)

    def _look_after(self, launch: Launch, call: Call) -> None:
        call.site = launch.site
        if launch.error is not None:
            call.error = f"{type(launch.error).__name__}: {launch.error}"
            return
        point = launch.point
        returned = readable_returns(launch) if launch.returned else {}
        if returned and launch.is_tracked:
            made = launch.storages[len(point.tensors) :]
            call.storages += tuple(s.id for s in made)
            call.epochs += tuple(s.epoch - 1 for s in made)
            call.offsets += tuple(int(t.storage_offset()) for t in returned.values())
        if call.pre is not None and self.versions is not None and call.hasher is self.versions.hasher:
            # What it only read is as it was, unless we are told to make sure or the code is the user's own.
            reread = point.is_opaque or self.config.verify == "reread"
            left = versions_after(launch, returned, reread)
            unread = {i: slot for i, slot in call.pre.items() if i not in left and i not in point.written}
            if point.is_opaque:
                self.versions.forget()  # it may have written to anything
            call.post = unread | self._take(launch, left, reread=True)
        for observer in self.observers:
            observer.after(call, launch)

    def replayed(self, template: Template, replay: int, stream: int, graph_call: int) -> None:
        if self._is_paused or not self._wants(template.site.kernel):
            return
        call = Call(
            key := next(self._keys),
            template.site,
            graph_call,
            self._steps,
            replay,
            threading.get_ident(),
            stream,
            template.phase,
            time.monotonic_ns(),
            scalars=template.scalars,
            storages=tuple(s.id for s in template.storages),
            epochs=tuple(s.epoch for s in template.storages),
            offsets=template.offsets,
            key=key,
        )
        if self.writer is None:
            self.run.entries.append(call)
        else:
            self.writer.enter(call)
            self.writer.launched(call.index, stream)
            self.writer.leave(call)
        if self.versions is not None:
            self.finding(_NO_VALUES_IN_REPLAYS)

    @property
    def notes_will_do(self) -> bool:
        config = self.config
        if self._is_paused:
            return True
        whole = config.values == "off" and not (config.kernel or config.kind or self.observers)
        # On disk the ring measures how long a noted call takes on the host.
        timed = self._times is not None or (config.time and self.writer is None)
        return whole and not timed and config.stop_at is None

    @property
    def notes_have_ends(self) -> bool:
        """After a crash it must be known which launch was executing."""
        return self.writer is not None

    @property
    def planner(self) -> Recording | None:
        """Itself, if from a graph's first execution it is known what to fingerprint in the next ones."""
        config = self.config
        whole = config.verify in ("", "reread") and not (config.kernel or config.kind or self.observers)
        plain_run = self.writer is None and not config.time and config.stop_at is None
        return self if config.values == "hash" and whole and plain_run and not self._is_paused else None

    def readings(self, graph_call: int, launches: int) -> GraphReadings | None:
        if self.versions is None or self.versions.hasher.taken_the_long_way:
            return None
        calls: list[Call] = []
        for entry in itertools.islice(reversed(self.run.entries), 2 * launches + 1000):
            if isinstance(entry, Call) and entry.graph_call == graph_call:
                calls.append(entry)
        return readings_of(calls[::-1]) if len(calls) == launches else None

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> PlannedGraph | None:
        assert self.versions is not None
        try:
            made = plan(self.versions.hasher, readings.tensors, flushes, _flush_failed)
        except CannotPlan:
            return None
        return PlannedGraph(made, self.run)

    @property
    def note(self) -> Callable[[Brief], Any]:
        if self._is_paused:
            return _ignore
        if not self.notes_will_do and self.planner is None:
            return self._note_if_wanted
        return self.run.entries.append if self.writer is None else self.writer.note

    def _note_if_wanted(self, entry: Brief) -> Any:
        """This recording opened while a graph was executing under one that needs notes only."""
        familiar = BUS.familiars.get(BRIEF.unpack(entry)[0])
        if familiar is not None and self._wants(familiar.site.kernel):
            return self.run.entries.append(entry) if self.writer is None else self.writer.note(entry)
        return None

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        message = f"{type(error).__name__}: {error}"
        if self.writer is not None:
            self.writer.note_failed(graph_call, line, message)
            return
        for entry in reversed(self.run.entries):
            if isinstance(entry, Call):
                if entry.graph_call == graph_call:
                    return  # a launch that was watched came after the last note
                continue
            number, noted_in, _ = BRIEF.unpack(entry)
            if noted_in == graph_call:
                familiar = self.run.familiars.get(number)
                if familiar is not None and familiar.site.line == line:
                    self.run.errors_of_briefs[id(entry)] = message
                return

    def graph_call(self, graph_call: GraphCall) -> None:
        graph = graph_call.graph
        own = self._graphs.get(graph.id)
        if own is None:
            own = self._graphs[graph.id] = replace(graph, id=len(self._graphs))  # numbered within the run
        parent = self._parent(BUS.here.launch, -1)
        if parent >= 0:
            self._parents[graph_call.index] = parent
        execution = replace(graph_call, graph=own, step=self._steps, parent=parent)
        if self.writer is None:
            self.run.graph_calls[graph_call.index] = execution
        elif not self._is_paused:
            self.writer.graph_call(execution)

    def mark(self, kind: str, text: str) -> None:
        if self.writer is None:
            self.run.marks.append(Mark(len(self.run), kind, text))
        else:
            self.writer.mark(kind, text)

    def finding(self, finding: Finding) -> None:
        if finding not in self.run.noted:
            self.run.noted.append(finding)
            if self.writer is not None:
                self.writer.finding(finding)

    def step(self, *, by_user: bool = False) -> None:
        if by_user and not self._counts_steps_itself:
            self._counts_steps_itself, self._steps = True, 0
        if by_user or not self._counts_steps_itself:
            self._steps += 1
            self.mark("step", str(self._steps))
            if self.config.steps is not None and not (self.writer and self.writer.failure):
                first, end = self.config.steps
                self._pause(not first <= self._steps < end)

    def _start_times(self) -> None:
        if self._times is None:
            return
        try:
            self._times.start()
        except RuntimeError as error:
            self._times = None
            self.finding(Finding("no-device-times", f"no times, another profiler is at work: {error}"))

    def _stop_times(self, times: DeviceTimes) -> None:
        try:
            times.stop()
        except RuntimeError as error:  # a fault of the device has ended the trace
            self.finding(Finding("no-device-times", f"the trace could not be read: {error}"))

    def _note_time(self, launch: Launch, call: Call) -> None:
        """On the host it is known now; what went to a GPU is told by the trace, later."""
        if launch.point.cuda_index < 0:
            call.duration_ns = time.monotonic_ns() - call.start_ns
        if self._times is not None:
            if self.writer is None:
                self._timed[call.index] = call
            self._times.leave()

    def _took(self, index: int, nanoseconds: int) -> None:
        if self.writer is not None:
            self.writer.duration(index, nanoseconds)
        elif index in self._timed:
            self._timed.pop(index).duration_ns = nanoseconds

    def _pause(self, paused: bool = True) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            BUS.look_again()

    def _stop(self, index: int) -> None:
        print(f"kernelscope: call {index} is over; the program ends here, as asked", file=sys.stderr)
        raise StopAtCall(0)

    def _parent(self, outer: Launch | None, graph_call: int) -> int:
        """Key of the call that a launch happens inside of, or the graph that it belongs to."""
        if outer is not None:
            call = outer.calls.get(self)
            return call.key if call is not None else -1
        return self._parents.get(graph_call, -1)

    # -- its own work ----------------------------------------------------------------------------------

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
                    f"{list(config.kind)}; kernel takes globs of whole names, kind triton, cpp, extern or op",
                )
            )

    def _poison(self, launch: Launch) -> dict[int, int]:
        """Fill the outputs that hold nothing yet, so that one that is never written shows.

        Only memory that this execution of the graph allocated: of that it is sure that it holds nothing.
        """
        assert self.versions is not None
        point = launch.point
        filled = [
            i
            for place, i in enumerate(point.tensors)
            if i in launch.dead
            and i in point.written
            and launch.storages[place].born_in == launch.graph_call >= 0
            and launch.flat[i].numel()
        ]
        with BUS.mute(), quiet():
            for i in filled:
                poison(launch.flat[i])
            slots = self.versions.hasher.take([launch.flat[i] for i in filled]) if filled else []
        return dict(zip(filled, slots, strict=True))

    def _take(self, launch: Launch, tensors: Tensors, *, reread: bool = False) -> dict[int, int]:
        assert self.versions is not None
        with BUS.mute():
            return self.versions.take(launch.graph_call, tensors, reread=reread)


def record(
    *,
    values: str = "off",
    ops: str = "graph",
    kernel: str | Sequence[str] = (),
    kind: str | Sequence[str] = (),
    verify: str = "",
    path: str | os.PathLike[str] | None = None,
    steps: tuple[int, int] | None = None,
    time: bool = False,
    stop_at: int | None = None,
    max_tensors: int = 2_000_000_000,
    keep_last: int = 0,
) -> AbstractContextManager[Run]:
    """Record every kernel call made inside the block.

    values  "off" for metadata, "hash" for a hash of every argument before and after each launch, "stats" for
            its statistics as well (min, max, mean, std, L1, and counts of NaN, infinities and zeros), "save"
            to keep the tensors, on disk
    ops     "graph" for compiled code and Triton kernels, "all" for eager operators as well
    kernel  record only kernels whose name matches one of these globs
    kind    record only these kinds: "triton", "cpp", "extern", "op"
    verify  "reread" hashes every argument before and after every launch, even when nothing can have
            changed it, and so finds what generated kernels write without declaring it; "poison" fills
            outputs that hold nothing yet, and so finds those that a kernel declares and never writes
    path    a new folder to record to, which survives a crash; without it the run is kept in memory
    steps   record only steps from the first up to, not including, the second: (3, 5)
    time    measure how long each call ran
    stop_at end the program once the call with this index is over
    max_tensors, keep_last    of a run on disk: bytes of saved tensors, and how many steps stay

    Example:
        with kernelscope.record(values="hash") as run:
            model(x).sum().backward()
        print(run)
    """
    if verify and values == "off":
        raise ValueError(f"record(verify={verify!r}) compares hashes; it needs values='hash'")
    config = Config(
        values=values,  # type: ignore[arg-type]  # checked by Config
        ops=ops,  # type: ignore[arg-type]
        kernel=strings(kernel),
        kind=strings(kind),
        verify=verify,  # type: ignore[arg-type]
        strict=strict_from_environment(),
        steps=steps,
        time=time,
        stop_at=stop_at,
        max_tensors=max_tensors,
        keep_last=keep_last,
    )
    if path is None and (values == "save" or keep_last):
        raise ValueError(
            "record(values='save') and record(keep_last=…) need a path: they are about a run on disk"
        )
    return _recorded(config, None if path is None else Path(path))


@contextmanager
def _recorded(config: Config, path: Path | None) -> Iterator[Run]:
    recording = Recording(config, None if path is None else folder.create(folder.named(path)))
    recording.open()
    try:
        yield recording.run
    finally:
        recording.close()


def step() -> None:
    """Mark the end of a step in every open recording; from then on `optimizer.step()` does not count."""
    for recording in list(_OPEN):
        recording.step(by_user=True)


# Dynamo reads this mark. Without it, it would trace the loop above into a compiled training step, and
# compile that again whenever a recording opens or closes.
step._torchdynamo_disable = True  # type: ignore[attr-defined]


_OPEN: list[Recording] = []
_forks_watched = False


def _watch_forks() -> None:
    global _forks_watched
    if not _forks_watched:
        os.register_at_fork(after_in_child=_close_copies)
        _forks_watched = True


def _close_copies() -> None:
    """A forked child has a copy of its parent's recordings; it closes them and records nothing."""
    if _OPEN:
        for recording in _OPEN:
            recording.is_open = False
            if recording.writer is not None:
                recording.writer.forget()
        _OPEN.clear()
        PROBES.forget_in_child()


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Work of our own with the program's tensors: no probe, mode or subclass sees it."""
    with BUS.mute(), quiet():
        yield


def _flush_failed() -> None:
    BUS.finding(own_fault("fingerprinting as planned"))


def _ignore(entry: Brief) -> None:
    """The recording pauses."""
