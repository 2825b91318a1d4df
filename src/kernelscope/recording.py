"""record(): opens probes, fingerprinter and sink; closes them in reverse."""

from __future__ import annotations

import itertools
import os
import platform
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from . import __version__
from .config import Config, place_from_environment, strict_from_environment, strings
from .events import Brief, Call, Finding, Graph, GraphCall, Kernel, Mark, RunInfo
from .fingerprint.fingerprinter import Fingerprinter
from .fingerprint.hashes import quiet
from .fingerprint.versions import Tensors, Versions
from .probes import PROBES
from .probes.bus import BUS
from .probes.describe import plain
from .probes.launch import Launch, Template
from .probes.notes import NO_NOTES, NoteLog, through
from .run import Run, StoredRun, folder
from .run.tensors import TensorSaver
from .run.writer import Writer
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
        info = _run_info(config)
        self.writer: Writer | None = None
        self.run: Run = Run(info)
        self.observers: list[Observer] = []
        self._indices: SupportsNext[int] = itertools.count()
        if path is not None:
            self.writer = Writer(path, info, timed=config.time, keep_last=config.keep_last)
            self.writer.on_failure = self._pause
            self.run = StoredRun(path, info, self.writer)
            self._indices = self.writer.flight
            if torch.version.cuda is not None:  # not is_available(), after which a fork cannot use the GPU
                self.writer.watch_streams(torch._C._cuda_getCurrentRawStream)
            if config.values == "save":
                self.observers.append(TensorSaver(self.writer, config.max_tensors, _unrecorded))
        self.versions = Versions(Fingerprinter()) if config.values in ("hash", "save") else None
        self._times = DeviceTimes(self._took) if config.time and torch.cuda.is_available() else None
        self._timed: dict[int, Call] = {}  # of a run in memory, until their times are known
        self.is_open = False
        self._is_paused = config.steps is not None and config.steps[0] > 0
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
        BUS.attach(self)

    def close(self) -> None:
        if not self.is_open:  # a forked child has closed its copy already
            return
        self.is_open = False
        _OPEN.remove(self)
        BUS.detach(self)
        if self.writer is None:
            self.run.put_in_order()
        self._say_when_filtered_out()
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
        outer = launch.outer.calls.get(self) if launch.outer is not None else None
        call = Call(
            next(self._indices),
            site,
            launch.graph_call,
            self._steps,
            -1,
            threading.get_ident(),
            launch.stream,
            launch.phase,
            launch.start_ns,
            outer.index if outer is not None else -1,
            tuple([plain(flat[i]) for i in point.scalars]) if point.scalars else (),
            launch.storage_ids,
            launch.epochs,
            launch.offsets,
            launch.dead,
        )  # by position: names would cost as much again
        if self.writer is None:
            self.run.entries.append(call)
        else:
            self.writer.enter(call)
        if self.versions is not None:
            call.hasher = self.versions.hasher
            reread = self.config.verify == "reread"
            call.pre = self._take(launch, _versions_before(launch), reread=reread)
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
        returned = _readable_returns(launch) if launch.returned else {}
        if returned and launch.is_tracked:
            made = launch.storages[len(point.tensors) :]
            call.storages += tuple(s.id for s in made)
            call.epochs += tuple(s.epoch - 1 for s in made)
            call.offsets += tuple(int(t.storage_offset()) for t in returned.values())
        if call.pre is not None and self.versions is not None and call.hasher is self.versions.hasher:
            # What it only read is as it was, unless we are told to make sure or the code is the user's own.
            reread = point.is_opaque or self.config.verify == "reread"
            left = _versions_after(launch, returned, reread)
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
            next(self._indices),
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
        )
        if self.writer is None:
            self.run.entries.append(call)
        else:
            self.writer.enter(call)
            self.writer.launched(call.index, stream)
            self.writer.leave(call)
        if self.versions is not None:
            self.finding(_NO_VALUES_IN_REPLAYS)

    def brief_log(self) -> NoteLog | None:
        """How a launch can be noted in few words, if that is enough here."""
        config, writer = self.config, self.writer
        if self._is_paused:
            return NO_NOTES
        if config.values != "off" or config.kernel or config.kind or self.observers or self._times:
            return None
        if writer is None:
            is_enough = not config.time and config.stop_at is None
            return NoteLog(self.run.entries.append) if is_enough else None
        return through(writer.flight, writer.note, writer.noted_left) if config.stop_at is None else None

    def brief_failed(self, entry: Brief, error: BaseException) -> None:
        message = f"{type(error).__name__}: {error}"
        if self.writer is None:
            self.run.errors_of_briefs[id(entry)] = message
        else:
            self.writer.failed(entry, message)

    def graph_call(self, graph_call: GraphCall) -> None:
        graph = graph_call.graph
        own = self._graphs.get(graph.id)
        if own is None:
            own = self._graphs[graph.id] = replace(graph, id=len(self._graphs))  # numbered within the run
        execution = replace(graph_call, graph=own, step=self._steps)
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

    values  "off" for metadata, "hash" for a hash of every argument before and after each launch, "save" to
            keep the tensors as well, on disk
    ops     "graph" for compiled code and Triton kernels, "all" for eager operators as well
    kernel  record only kernels whose name matches one of these globs
    kind    record only these kinds: "triton", "cpp", "extern", "op"
    verify  "reread" hashes every argument before and after every launch, even when nothing can have
            changed it, and so finds what generated kernels write without declaring it
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


def _versions_before(launch: Launch) -> Tensors:
    """What the launch finds: its inputs, and what it writes over, where that means anything."""
    point, flat, stream = launch.point, launch.flat, launch.stream
    found = zip(point.tensors, launch.storage_ids, launch.epochs, launch.offsets, point.views, strict=True)
    return {
        i: ((storage, epoch, offset, view, stream), flat[i])
        for i, storage, epoch, offset, view in found
        if i not in launch.dead
    }


def _versions_after(launch: Launch, returned: dict[int, torch.Tensor], reread: bool) -> Tensors:
    """What the launch left behind: what it wrote and returned, and with `reread` everything it was given."""
    point, stream = launch.point, launch.stream
    left: Tensors = {}
    touched = {launch.storage_ids[place] for _, place in point.outputs}  # an input may lie in written memory
    for place, i in enumerate(point.tensors):
        if i in point.written and point.is_pending:
            continue  # a collective is under way; its wait is the write
        if i in point.written or (i not in launch.dead and (reread or launch.storage_ids[place] in touched)):
            storage, offset = launch.storages[place], launch.offsets[place]
            left[i] = ((storage.id, storage.epoch, offset, point.views[place], stream), launch.flat[i])
    made = launch.storages[len(point.tensors) :]
    for (i, tensor), storage in zip(returned.items(), made, strict=True):
        view = id(launch.site.args[i].tensor)
        left[i] = ((storage.id, storage.epoch, int(tensor.storage_offset()), view, stream), tensor)
    return left


def _readable_returns(launch: Launch) -> dict[int, torch.Tensor]:
    """What the launch returned, by argument index, where its values can be read."""
    first = len(launch.point.site.args)
    specs = [arg.tensor for arg in launch.site.args[first:]]
    return {
        first + i: tensor
        for i, (tensor, spec) in enumerate(zip(launch.returned, specs, strict=True))
        if spec is not None and not spec.unread
    }


def _run_info(config: Config) -> RunInfo:
    place = place_from_environment()
    cuda: Any = torch.cuda
    devices = range(cuda.device_count()) if cuda.is_initialized() and cuda.is_available() else ()
    return RunInfo(
        uuid=str(uuid.uuid4()),
        group=place.group,
        rank=place.rank,
        local_rank=place.local_rank,
        world_size=place.world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        parent_pid=os.getppid(),
        monotonic_ns=time.monotonic_ns(),
        realtime_ns=time.time_ns(),
        devices=tuple(str(cuda.get_device_properties(i).uuid) for i in devices),
        versions=_versions(),
        settings=config.changed(),
    )


def _versions() -> dict[str, str]:
    versions = {
        "kernelscope": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return versions
