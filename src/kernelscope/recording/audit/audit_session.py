"""One audit: a profiler of our own from the opening of a recording to its end, and its trace read then."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cache
from typing import Any

import torch

from kernelscope.events import CPP_RANGE, Finding
from kernelscope.model.audit import Audit
from kernelscope.model.run import Run
from kernelscope.probes.bus import BUS
from kernelscope.probes.cuda_graphs.tree_graphs import InputCopies
from kernelscope.probes.eager.profilers import (
    Printing,
    ProgramsOwnProfiler,
    StoppedRecomputations,
    TraceEvent,
    kineto_events,
    profiler_is_running,
    tracing,
)
from kernelscope.probes.operators import is_birth, is_view, launches_nothing_itself
from kernelscope.probes.own_work import own_fault

from .claims import HostEvent, is_call, operators
from .device_claims import DeviceEvent, on_device
from .generated_launches import generated_launches

_RANGES = ("cpu_op", "user_annotation", "cpu_instant_event")
_FUNCTIONS = ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver")
_DEVICE = ("kernel", "concurrent_kernel", "gpu_memcpy", "gpu_memset")
_NOT_WORK = {
    "resize_", "set_", "detach_", "record_stream", "cudnn_is_acceptable", "_has_compatible_shallow_copy_type",
    "_alloc_from_pool", "_reinterpret_tensor",
}  # fmt: skip


class AuditSession:
    """What `record(audit=True)` does besides recording."""

    def __init__(self, finding: Callable[[Finding], None], ops: str) -> None:
        self._finding = finding
        self._profiler: Any = None
        self._events: list[TraceEvent] = []
        self._incomplete = ""
        self._patches = [ProgramsOwnProfiler(self._give_way), Printing(), InputCopies()]
        if ops == "all":  # only then is an operator that is stopped before its first call known to be empty
            self._patches.append(StoppedRecomputations())

    def start(self) -> None:
        if profiler_is_running():
            self._incomplete = "another profiler was running when the recording opened"
            return
        self._profiler = tracing()
        self._profiler.start()
        for patches in self._patches:
            patches.install()

    def _give_way(self) -> None:
        """The program starts a profiler: torch allows one at a time, and it must get its own."""
        if self._profiler is not None:
            self._incomplete = "the program started a profiler of its own; what followed is not covered"
            self._stop_profiler()

    def _stop_profiler(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()
            self._events = kineto_events(profiler)

    def stop(self) -> None:
        for patches in reversed(self._patches):
            patches.remove()
        try:
            self._stop_profiler()
        except RuntimeError as error:
            self._incomplete = f"the profiler's trace could not be read: {error}"

    def result(self, run: Run, raised: Container[int]) -> Audit | None:
        """Read when the run is complete; `raised` are the graph calls that ended with an exception."""
        try:
            with BUS.mute():
                made = self._result(run, raised)
        except Exception:
            self._finding(own_fault("reading the profiler's trace for the audit"))
            return None
        if made.missing or made.incomplete:
            self._finding(Finding("audit", "\n".join(made.lines(limit=5))))
        return made

    def _result(self, run: Run, raised: Container[int]) -> Audit:
        host, functions = self._on_host(_RANGES), self._on_host(_FUNCTIONS)
        device = [
            DeviceEvent(e.name, e.correlation, e.linked, e.start, e.end)
            for e in self._events
            if e.kind in _DEVICE
        ]
        calls = sum(is_call(event.name) for event in host)
        if device:
            found = on_device(host, functions, device)
        else:
            found = operators(host, is_work)
        expected, seen = (0, 0) if self._incomplete else generated_launches(run, raised)
        logged = any(event.name == CPP_RANGE for event in host) and any(
            f.kind == "unseen-graph" for f in run.noted_findings()
        )
        why = self._incomplete or ("launches of a C++ wrapper were not seen; see findings" if logged else "")
        return Audit(
            "cuda" if device else "cpu", calls, found.launches, found.nanoseconds / 1e9, found.outside,
            expected, seen, found.compiling, why, found.copies,
        )  # fmt: skip

    def _on_host(self, kinds: Container[str]) -> list[HostEvent]:
        return [
            HostEvent(e.name, e.thread, e.start, e.end, e.correlation)
            for e in self._events
            if e.kind in kinds
        ]


@cache
def is_work(name: str) -> bool:
    """Whether an event of the profiler is an operator that computes: not a view, an allocation, a range."""
    namespace, separator, operator = name.partition("::")
    if not separator or not namespace.isidentifier() or namespace in ("autograd", "profiler", "prim"):
        return False
    packet = getattr(getattr(torch.ops, namespace, None), operator, None)
    if packet is None or operator in _NOT_WORK:
        return False
    overloads = [getattr(packet, each) for each in packet.overloads()]
    if namespace == "aten" and all(map(launches_nothing_itself, overloads)):
        return False
    return not is_view(packet) and not any(map(is_birth, overloads))
