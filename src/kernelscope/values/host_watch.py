"""A watch on the CPU: the first execution of a graph is looked at in full, the next ones as planned.

A planned execution looks at what each launch leaves in one call of C++, right after the launch, and copies
what the launch is going to overwrite. Where something is found, the launch is put together again from its
arguments, and judged like one that was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelscope.events import Call, Site, SteadySite, TensorSpec
from kernelscope.fingerprint import Stats, fingerprint
from kernelscope.fingerprint.cpu.in_wrappers import nan_scan as host_scan
from kernelscope.fingerprint.cpu.in_wrappers.runs import Runs, runs_of
from kernelscope.fingerprint.cuda import nan_scan as scan
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch, LaunchPoint
from kernelscope.probes.listener import GraphReadings
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.python_wrappers.planned_source import When
from kernelscope.recording.planning import readings_of
from kernelscope.recording.sinks import Sink

from .watching import Tensors, Watcher

_ROWS_KEPT = 100_000  # fingerprints: more than those of one execution


class HostWatch:
    """Of NaN and infinities; sees what a watcher of all conditions sees, at a fraction of the cost."""

    plans: When = "at once"

    def __init__(
        self, watcher: Watcher, wanted: int, sink: Sink, fingerprinter: Callable[[], Fingerprinter | None]
    ) -> None:
        """`wanted` has the bits of what is watched for; `fingerprinter` takes the values if none are kept."""
        self._fingerprinter = fingerprinter
        self.watcher = watcher
        self.wanted = wanted | scan.POS_INF  # which a later NaN may come from
        self.sink = sink
        self._forgotten = 0

    # -- looked at -------------------------------------------------------------------------------------

    def prepare(self, device: torch.device) -> None:
        """Nothing is captured on a CPU."""

    def begin(self) -> None:
        """The same."""

    def end(self) -> None:
        """The same."""

    memory: Any = None
    nbytes = 0

    def captured(self, launch: Launch) -> None:
        """The same."""

    def poll(self) -> None:
        """What is found is reported at once, and its values are not read later."""
        fingerprinter = self._fingerprinter()
        newest = 0 if fingerprinter is None else fingerprinter.host_log.rows
        if fingerprinter is not None and newest - self._forgotten > 2 * _ROWS_KEPT:
            self._forgotten = newest - _ROWS_KEPT
            fingerprinter.forget(self._forgotten)

    def before(self, call: Call, launch: Launch) -> None:
        self.watcher.before(call, launch)

    def after(self, call: Call, launch: Launch) -> None:
        self.watcher.after(call, launch)

    # -- as planned ------------------------------------------------------------------------------------

    def readings(self, calls: list[Call]) -> GraphReadings | None:
        """What the calls of a graph call overwrote, and what they left."""
        number = iter(range(1 << 30))
        marked, beside = [], {}
        for call in calls:
            site = call.site
            args = [i for i, arg in enumerate(site.args) if _is_readable(arg.tensor)]
            written = [i for i in args if site.args[i].role in ("out", "inout") or site.args[i].returned]
            left = [i for i in written if scan.has_such(_dtype(site, i))]
            if not self.watcher.watches.at(site):
                left = []
            storages = dict(zip(args, call.storages, strict=False))
            touched = {storages.get(i) for i in written if not site.args[i].returned}  # inputs may lie there
            found = [i for i in args if storages.get(i) in touched and i not in call.uninitialised]
            pre, post = ({i: next(number) for i in some} for some in (found if left else [], left))
            marked.append(replace(call, pre=pre, post=post))
            beside[site.id] = args if left else []
        readings = readings_of(marked)
        if readings is not None:
            readings.beside = beside
        return readings

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> HostScanPlan | None:
        library = host_scan.LIBRARY.get()
        if library is None or any(not _can_be_scanned(spec) for spec in readings.tensors):
            return None
        return HostScanPlan(self, library, readings, flushes)


class HostScanPlan:
    """The scans of one graph: a flush copies what a launch is going to overwrite, or scans what it left."""

    def __init__(
        self,
        watch: HostWatch,
        library: host_scan.NanScanLibrary,
        readings: GraphReadings,
        flushes: Sequence[Sequence[int]],
    ) -> None:
        self._watch, self._library, self._readings = watch, library, readings
        self._copied = {n: (site, i) for site, some in readings.before.items() for i, n in some}
        self._scanned = {n: (site, i) for site, some in readings.after.items() for i, n in some}
        self._copies: dict[int, dict[int, torch.Tensor]] = {}  # by site: the memory for each argument
        self.flushes = [self._flush(numbers) for numbers in flushes]

    def begin(self, graph_call: int) -> tuple[int]:
        return (graph_call,)

    def ended(self, execution: Any, *, broken_off: bool) -> None:
        """What was not looked at is not reported."""

    def _flush(self, numbers: Sequence[int]) -> Callable[..., None]:
        tensors = self._readings.tensors
        scans = [
            (place, runs, scan.kind_of(getattr(torch, tensors[n].dtype)) or 0)
            for place, n in enumerate(numbers)
            if n in self._scanned and (runs := _runs(tensors[n])).nbytes
        ]
        copies = [
            (place, runs, self._room_for(n).data_ptr())
            for place, n in enumerate(numbers)
            if n in self._copied and (runs := _runs(tensors[n])).nbytes
        ]
        site = next((self._scanned[n][0] for n in numbers if n in self._scanned), -1)
        steady = self._readings.steady_sites.get(site)

        def found(execution: tuple[int] | None, *given: torch.Tensor) -> None:
            if steady is not None and execution is not None:
                self._found(steady, [self._scanned[n][1] for n in numbers], execution[0], given)

        def carefully(execution: tuple[int] | None, *given: torch.Tensor) -> None:
            try:
                with BUS.mute(), quiet():
                    for place, n in enumerate(numbers):
                        if n in self._copied and given[place].numel():
                            self._room_for(n).copy_(_bytes_of(given[place], tensors[n]))
            except Exception:
                BUS.finding(own_fault("copying what a launch overwrites"))
            found(execution, *given)

        return self._library.look(scans, copies, self._watch.wanted, carefully, found)

    def _room_for(self, number: int) -> torch.Tensor:
        site, i = self._copied[number]
        rooms = self._copies.setdefault(site, {})
        if i not in rooms:
            with BUS.mute(), quiet(), torch.inference_mode(False):
                extent = _runs(self._readings.tensors[number]).extent
                rooms[i] = torch.zeros(extent, dtype=torch.uint8, device="cpu")
        return rooms[i]

    def _found(
        self, steady: SteadySite, left: list[int], graph_call: int, given: Sequence[torch.Tensor]
    ) -> None:
        """Put the launch together again, and have it judged; what the user's action raises goes on."""
        try:
            with BUS.mute(), quiet():
                seen = self._launch(steady, graph_call, given[len(left) :])
        except Exception:
            BUS.finding(own_fault("looking for NaN as planned"))
            return
        call, launch, copies, pre, post = seen
        self._watch.watcher.judge(call, launch, copies, pre, post)
        if not any(stats.pos_inf for stats in pre.values()):
            for place, i in enumerate(launch.point.tensors):
                if i in post and post[i].pos_inf:
                    self._watch.watcher.note_infinity(launch.storage_ids[place], call)

    def _launch(
        self, steady: SteadySite, graph_call: int, given: Sequence[torch.Tensor]
    ) -> tuple[Call, Launch, Tensors, dict[int, Stats], dict[int, Stats]]:
        site = steady.site
        sink = self._watch.sink
        index = sink.last_position
        call = Call(index, site, graph_call)
        call.key, call.uninitialised = index, steady.uninitialised
        count = len([arg for arg in site.args if not arg.returned])
        values: list[Any] = [None] * len(site.args)
        for i, tensor in zip(self._readings.beside[site.id], given, strict=True):
            values[i] = _as_described(tensor, site.args[i].tensor)
        launch = Launch()
        launch.point = LaunchPoint(replace(site, args=site.args[:count]))
        launch.site, launch.flat, launch.returned = site, values[:count], values[count:]
        # Storages have small numbers elsewhere; here their addresses are known.
        launch.storage_ids = tuple(-values[i].untyped_storage().data_ptr() for i in launch.point.tensors)
        launch.storages, launch.is_tracked = [], False
        copies = {
            i: _as_described(room, site.args[i].tensor) for i, room in self._copies.get(site.id, {}).items()
        }
        pre = {
            i: _stats_of(copies.get(i, values[i]))
            for i in launch.point.tensors
            if i not in call.uninitialised
        }
        outputs = [i for i, arg in enumerate(site.args) if arg.role in ("out", "inout") or arg.returned]
        post = {i: _stats_of(values[i]) for i in outputs if values[i] is not None}
        return call, launch, copies, _known(pre), _known(post)


def _known(stats: dict[int, Stats | None]) -> dict[int, Stats]:
    return {i: found for i, found in stats.items() if found is not None}


def _stats_of(tensor: torch.Tensor) -> Stats | None:
    return fingerprint(tensor).stats


def _is_readable(spec: TensorSpec | None) -> bool:
    return spec is not None and not spec.unread


def _dtype(site: Site, i: int) -> torch.dtype:
    spec = site.args[i].tensor
    assert spec is not None
    found: torch.dtype = getattr(torch, spec.dtype)
    return found


def _runs(spec: TensorSpec) -> Runs:
    return runs_of(spec.shape, spec.stride, getattr(torch, spec.dtype).itemsize)


def _can_be_scanned(spec: TensorSpec) -> bool:
    """What is copied may be of any dtype; what has neither NaN nor infinities is not scanned."""
    dtype = getattr(torch, spec.dtype)
    return spec.device == "cpu" and (scan.kind_of(dtype) is not None or not scan.has_such(dtype))


def _as_described(tensor: torch.Tensor, spec: TensorSpec | None) -> torch.Tensor:
    """The same memory, as the launch was given it: a wrapper may have another view of it under that name."""
    assert spec is not None
    dtype = getattr(torch, spec.dtype)
    if tensor.dtype != dtype:
        tensor = tensor.view(dtype)
    return torch.as_strided(tensor, spec.shape, spec.stride, int(tensor.storage_offset()))


def _bytes_of(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Of all its memory, with the gaps between its elements."""
    count = _runs(spec).extent // tensor.itemsize
    return torch.as_strided(tensor, (count,), (1,), int(tensor.storage_offset())).view(torch.uint8)
