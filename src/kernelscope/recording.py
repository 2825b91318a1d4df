"""record(): opens probes, fingerprinter and sink; closes them in reverse."""

from __future__ import annotations

import itertools
import os
import platform
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

import torch

from . import __version__
from .config import Config, place_from_environment, strict_from_environment, strings
from .events import BRIEF, Brief, Call, Finding, Graph, GraphCall, Kernel, Mark, RunInfo
from .fingerprint.fingerprinter import Fingerprinter
from .fingerprint.versions import Tensors, Versions
from .probes import PROBES
from .probes.bus import BUS
from .probes.describe import plain
from .probes.launch import Launch, Template
from .run import Run

_NO_VALUES_IN_REPLAYS = Finding(
    "values-in-cuda-graph",
    "calls replayed from a CUDA graph have no hashes; to see their values, run without CUDA graphs",
)


class Observer(Protocol):
    """Wants more of each launch than a recording keeps: the live arguments, before and after."""

    def before(self, call: Call, launch: Launch) -> None: ...
    def after(self, call: Call, launch: Launch) -> None: ...


class Recording:
    """Turns launches into the calls of one run."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.run = Run(_run_info(config))
        self.versions = None if config.values == "off" else Versions(Fingerprinter(level=config.values))
        self.observers: list[Observer] = []
        self.is_open = False
        self._indices = itertools.count()
        self._steps = 0
        self._counts_steps_itself = False
        self._wanted: dict[int, bool] = {}
        self._graphs: dict[int, Graph] = {}  # as this run numbers them, by the process's number

    def open(self) -> None:
        _watch_forks()
        PROBES.acquire(operators=self.config.ops == "all", strict=self.config.strict)
        self.is_open = True
        _OPEN.append(self)
        BUS.attach(self)
        self.run.familiars = BUS.familiars

    def close(self) -> None:
        if not self.is_open:  # a forked child has closed its copy already
            return
        self.is_open = False
        _OPEN.remove(self)
        BUS.detach(self)
        self.run.put_in_order()
        self._say_when_filtered_out()
        PROBES.release(operators=self.config.ops == "all")

    # -- what the bus says -----------------------------------------------------------------------------

    def before(self, launch: Launch) -> Call | None:
        site, point = launch.site, launch.point
        if launch.captured or not self._wants(site.kernel):
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
        self.run.entries.append(call)
        if self.versions is not None:
            call.hasher = self.versions.hasher
            reread = self.config.verify == "reread"
            call.pre = self._take(launch, _versions_before(launch), reread=reread)
        for observer in self.observers:
            observer.before(call, launch)
        return call

    def after(self, launch: Launch, call: Call) -> None:
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
        if not self._wants(template.site.kernel):
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
        self.run.entries.append(call)
        if self.versions is not None:
            self.finding(_NO_VALUES_IN_REPLAYS)

    @property
    def notes_will_do(self) -> bool:
        config = self.config
        return config.values == "off" and not (config.kernel or config.kind or self.observers)

    @property
    def note(self) -> Callable[[Brief], None]:
        return self.run.entries.append if self.notes_will_do else self._note_if_wanted

    def _note_if_wanted(self, entry: Brief) -> None:
        """This recording opened while a graph was executing under one that needs notes only."""
        if self._wants(self.run.familiars[BRIEF.unpack(entry)[0]].site.kernel):
            self.run.entries.append(entry)

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        for entry in reversed(self.run.entries):
            if isinstance(entry, Call):
                if entry.graph_call == graph_call:
                    return  # a launch that was watched came after the last note
                continue
            number, noted_in, _ = BRIEF.unpack(entry)
            if noted_in == graph_call:
                if self.run.familiars[number].site.line == line:
                    self.run.errors_of_briefs[id(entry)] = f"{type(error).__name__}: {error}"
                return

    def graph_call(self, graph_call: GraphCall) -> None:
        graph = graph_call.graph
        own = self._graphs.get(graph.id)
        if own is None:
            own = self._graphs[graph.id] = replace(graph, id=len(self._graphs))  # numbered within the run
        self.run.graph_calls[graph_call.index] = replace(graph_call, graph=own, step=self._steps)

    def mark(self, kind: str, text: str) -> None:
        self.run.marks.append(Mark(len(self.run), kind, text))

    def finding(self, finding: Finding) -> None:
        if finding not in self.run.noted:
            self.run.noted.append(finding)

    def step(self, *, by_user: bool = False) -> None:
        if by_user and not self._counts_steps_itself:
            self._counts_steps_itself, self._steps = True, 0
        if by_user or not self._counts_steps_itself:
            self._steps += 1
            self.mark("step", str(self._steps))

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
) -> AbstractContextManager[Run]:
    """Record every kernel call made inside the block.

    values  "off" for metadata, "hash" for a hash of every argument before and after each launch, "stats" for
            its statistics as well: min, max, mean, std, L1, and counts of NaN, infinities and zeros
    ops     "graph" for compiled code and Triton kernels, "all" for eager operators as well
    kernel  record only kernels whose name matches one of these globs
    kind    record only these kinds: "triton", "cpp", "extern", "op"
    verify  "reread" hashes every argument before and after every launch, even when nothing can have
            changed it, and so finds what generated kernels write without declaring it

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
    )
    return _recorded(config)


@contextmanager
def _recorded(config: Config) -> Iterator[Run]:
    recording = Recording(config)
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
        _OPEN.clear()
        PROBES.forget_in_child()


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
    devices = range(cuda.device_count()) if cuda.is_available() and cuda.is_initialized() else ()
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
