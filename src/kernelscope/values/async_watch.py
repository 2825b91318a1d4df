"""A watch that never waits: kernels on the GPU scan what each launch leaves, and raise a flag.

The flag is memory of the host. It is read whenever something is recorded, and at the end; once it is up,
the rows of all scanned tensors show which call was the first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import torch

from kernelscope.events import Call, Finding, Site
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.cuda import ahead as cuda_ahead
from kernelscope.fingerprint.cuda import nan_scan as scan
from kernelscope.fingerprint.cuda.launcher import Prepared, quick
from kernelscope.fingerprint.stats import Stats
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import GraphReadings
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.python_wrappers.planned_source import When
from kernelscope.recording.launch_values import Slots, readable_returns
from kernelscope.recording.planning import readings_of

from .conditions import Condition
from .hits import Hit, Watches, hit_at
from .kernel_filter import KernelFilter

_BITS = {"nan": scan.NAN, "inf": scan.POS_INF, "-inf": scan.NEG_INF}
_BLOCKS_KEPT = 4096  # what was looked at longer ago is over, and was fine


@dataclass(frozen=True, slots=True)
class _Looked:
    """Some rows: of one call, or of a planned graph call."""

    first: int
    count: int
    call: Call | None = None
    graph_call: int = -1
    rows: dict[int, tuple[Site, int]] | None = None  # of a plan: which argument of which site has a row
    is_captured: bool = False


def can_watch_async(conditions: Sequence[Condition]) -> bool:
    """Whether the device can check them without the host."""
    return all(condition.measure in _BITS for condition in conditions)


def bits_of(conditions: Sequence[Condition]) -> int:
    """What they look for, as the scans have it."""
    return reduce(or_, (_BITS[condition.measure] for condition in conditions))


class AsyncWatch:
    """Takes the place of a recording's fingerprinter; `on_hit` gets each hit once."""

    plans: When = "lazily"

    def __init__(
        self,
        conditions: Sequence[Condition],
        wanted: KernelFilter,
        on_hit: Callable[[Hit], None],
        index_of: Callable[[int, int | None], int],
    ) -> None:
        """`index_of` knows the call at a site in a graph call; without one, the first at that site."""
        self.watches = Watches(conditions, wanted)
        self._on_hit = on_hit
        self._index_of = index_of
        self._mask = bits_of(conditions)
        self._devices: dict[torch.device, scan.DeviceScan] = {}
        self._looked: deque[tuple[torch.device, _Looked]] = deque(maxlen=_BLOCKS_KEPT)
        self._captured: list[tuple[torch.device, _Looked]] = []
        self._left: dict[int, Slots] = {}  # by call of a graph that is not planned yet: its outputs, numbered
        self._slots = 0
        cuda_ahead.start("watch")

    # -- launches --------------------------------------------------------------------------------------

    def before(self, call: Call, launch: Launch) -> None:
        """What it finds was left by another."""

    def after(self, call: Call, launch: Launch) -> None:
        """Look at what it left."""
        outputs = self._outputs(launch)
        if not outputs or not self.watches.at(call.site):
            return
        if call.graph_call >= 0:
            self._left[call.key] = {i: self._slots + place for place, i in enumerate(outputs)}
            self._slots += len(outputs)
        on_host = {i: t for i, t in outputs.items() if t.device.type != scan.DEVICE}
        for i, tensor in on_host.items():
            self._look_now(call, i, tensor)
        self._look(call, {i: t for i, t in outputs.items() if i not in on_host})

    def _look(self, call: Call, outputs: dict[int, torch.Tensor], *, captured: bool = False) -> None:
        if not outputs:
            return
        device = next(iter(outputs.values())).device
        with BUS.mute(), quiet():
            watch = self.on(device)
            first = watch.reserve(len(outputs), captured=captured)
            watch.enqueue(first, list(outputs.values()))
        rows = {place: (call.site, i) for place, i in enumerate(outputs)}
        looked = _Looked(first, len(outputs), call, call.graph_call, rows, captured)
        (self._captured if captured else self._looked).append((device, looked))

    def _look_now(self, call: Call, i: int, tensor: torch.Tensor) -> None:
        with BUS.mute(), quiet():
            stats = fingerprint(tensor).stats
        if stats is not None:
            self._judge(call.index, call.site, i, stats)

    def _outputs(self, launch: Launch) -> dict[int, torch.Tensor]:
        point = launch.point
        if point.is_pending or launch.error is not None:
            return {}
        found = {i: launch.flat[i] for i in point.tensors if i in point.written} | readable_returns(launch)
        return {i: t for i, t in found.items() if scan.has_such(t.dtype)}

    # -- CUDA graphs -----------------------------------------------------------------------------------

    def prepare(self, device: torch.device) -> None:
        """While a CUDA graph is captured nothing can be allocated or compiled."""
        with BUS.mute(), quiet():
            self.on(device)

    def begin(self) -> None:
        """First thing in a capture. Nothing to clear: rows stay zero until there is a hit."""

    def end(self) -> None:
        """Nothing is put off."""

    @property
    def memory(self) -> Any:
        return list(self._devices.values())

    @property
    def nbytes(self) -> int:
        return 0  # of the graph's own

    def captured(self, launch: Launch) -> None:
        """A launch that executes at each replay: so does looking at what it leaves."""
        outputs = self._outputs(launch)
        if outputs and self.watches.at(launch.site):
            self._look(Call(-1, launch.site, launch.graph_call), outputs, captured=True)

    # -- as planned ------------------------------------------------------------------------------------

    def readings(self, calls: list[Call]) -> GraphReadings | None:
        """What the calls of a graph call left, so that the next one can be planned like it."""
        left = [replace(call, pre={}, post=self._left.get(call.key, {})) for call in calls]
        self._left.clear()
        return readings_of(left)

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> ScanPlan | None:
        devices = {spec.device for spec in readings.tensors}
        if len(devices) != 1 or not devices.copy().pop().startswith(scan.DEVICE):
            return None
        specs = []
        for spec in readings.tensors:
            kind = scan.kind_of(getattr(torch, spec.dtype))
            if kind is None or not scan.fills_its_memory(spec.shape, spec.stride):
                return None
            specs.append((spec.nbytes, kind))
        rows = {
            number: (steady.site, i)
            for steady in readings.steady_sites.values()
            for i, number in (steady.post or {}).items()
        }
        return ScanPlan(self, self.on(torch.device(devices.pop())), specs, flushes, rows)

    def began(self, device: torch.device, first: int, count: int, graph_call: int, rows: Any) -> None:
        self._looked.append((device, _Looked(first, count, None, graph_call, rows)))

    # -- what was found --------------------------------------------------------------------------------

    def on(self, device: torch.device) -> scan.DeviceScan:
        watch = self._devices.get(device)
        if watch is None:
            if reason := scan.prepare(device):
                raise RuntimeError(f"a watch that does not wait needs a GPU and Triton: {reason}")
            watch = self._devices[device] = scan.DeviceScan(device, self._mask)
        return watch

    def poll(self) -> None:
        """Whether something was found; never waits, unless there is."""
        if BUS.capture is not None:  # nothing may wait now
            return
        for watch in self._devices.values():
            if watch.is_raised:
                self.settle()
                return

    def settle(self) -> None:
        """Wait, and report the hits; at the end, and when a flag is up."""
        for device, watch in self._devices.items():
            with BUS.mute():
                rows = watch.read()
            if not watch.is_raised:
                continue
            blocks = [looked for where, looked in [*self._captured, *self._looked] if where == device]
            try:
                for looked in sorted(blocks, key=self._moment):
                    self._judge_block(looked, rows)
            finally:
                self._looked.clear()
                with BUS.mute():
                    watch.clear()

    def _moment(self, looked: _Looked) -> tuple[int, int]:
        index = looked.call.index if looked.call is not None and not looked.is_captured else -1
        return looked.graph_call, index

    def _judge_block(self, looked: _Looked, rows: list[list[int]]) -> None:
        assert looked.rows is not None
        for place in range(looked.count):
            nan, pos, neg = rows[looked.first + place]
            if not (nan or pos or neg):
                continue
            site, i = looked.rows[place]
            spec = site.args[i].tensor
            numel = math.prod(spec.shape) if spec is not None else 0
            stats = Stats(numel, None, None, None, None, 0.0, nan, pos, neg, 0)
            self._judge(self._index(looked, site), site, i, stats, is_captured=looked.is_captured)

    def _judge(self, index: int, site: Site, i: int, stats: Stats, *, is_captured: bool = False) -> None:
        arg = site.args[i]
        remarks = ["the first watched call with it; watch(…, exact=True) also checks its inputs"]
        if is_captured:
            remarks.append("it was replayed from a CUDA graph, perhaps several times since")
        for condition in self.watches.at(site):
            if (
                condition.holds(stats)
                and condition.looks_at(arg.name, arg.wrapper_name)
                and self.watches.is_new(condition.text, site, i)
            ):
                known = {"call": index, "condition": condition.text, "found": condition.found(stats)}
                self._on_hit(hit_at(site, i, **known, is_producer=True, remarks=tuple(remarks)))

    def _index(self, looked: _Looked, site: Site) -> int:
        if looked.call is not None and not looked.is_captured:
            return looked.call.index
        return self._index_of(site.id, None if looked.is_captured else looked.graph_call)


class ScanPlan:
    """Looks at what the launches of a graph leave, given nothing but where it lies."""

    def __init__(
        self,
        watch: AsyncWatch,
        on: scan.DeviceScan,
        specs: Sequence[tuple[int, int]],
        flushes: Sequence[Sequence[int]],
        rows: dict[int, tuple[Site, int]],
    ) -> None:
        self._watch, self._on, self._count, self._rows = watch, on, len(specs), rows
        described = [scan.about(nbytes, kind) for nbytes, kind in specs]
        self.flushes = [self._flush([(row, described[row]) for row in numbers]) for numbers in flushes]

    def ended(self, execution: Any, *, broken_off: bool) -> None:
        """What was not looked at has no flag."""

    def begin(self, graph_call: int) -> tuple[int, int, int]:
        first = self._on.reserve(self._count)
        self._watch.began(self._on.device, first, self._count, graph_call, self._rows)
        return self._on.address(first), scan.current_stream(self._on.device), first

    def _flush(self, todo: list[tuple[int, int]]) -> Callable[..., None]:
        on, neighbours = self._on, _neighbours([row for row, _ in todo])

        def carefully(execution: tuple[int, int, int], *tensors: torch.Tensor) -> None:
            try:
                _, stream, first = execution
                pieces = [(t.data_ptr(), about) for t, (_, about) in zip(tensors, todo, strict=True)]
                for start, end in neighbours:
                    some = pieces[start:end]
                    if any(address % 8 for address, _ in some):
                        on.enqueue(first + todo[start][0], tensors[start:end])
                    else:
                        on.enqueue_pieces(first + todo[start][0], some, stream)
            except Exception:
                BUS.finding(own_fault("looking for NaN as planned"))

        launches: list[Prepared | None] = []
        for start, end in neighbours:
            some = range(start, end)
            launches += on.prepare(todo[start][0], [(place, todo[place][1]) for place in some])
        known = [launch for launch in launches if launch is not None]
        if not known or len(known) < len(launches):
            return carefully
        return quick(known, carefully, _refused, stream=1, counted=())


def _refused(execution: Any, error: int) -> None:
    message = f"the scan for NaN could not be launched (CUDA error {error}): its results are missing"
    BUS.finding(Finding("recorder-error", message))


def _neighbours(rows: list[int]) -> list[tuple[int, int]]:
    """Runs of rows that follow each other."""
    starts = [i for i, row in enumerate(rows) if not i or rows[i - 1] + 1 != row]
    return list(zip(starts, [*starts[1:], len(rows)], strict=True))
