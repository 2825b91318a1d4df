"""Device time of each call: CUPTI through Kineto, joined to our calls by correlation id; or pairs of events.

Traced, each call runs inside a range that bears its index. The profiler links a kernel on the device to the
operator that launched it; the range that this operator lies in is the call.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..events import RANGE_PREFIX as PREFIX
from ..probes.bus import BUS

_AT_MOST = 20_000  # calls in one trace: then it is read, and another one begins


class Range(NamedTuple):
    start: int
    end: int
    call: int


class HostEvent(NamedTuple):
    correlation: int
    thread: int
    start: int
    end: int
    name: str


class DeviceEvent(NamedTuple):
    linked: int  # the correlation of the host event that launched it
    duration: int


def join(host: Iterable[HostEvent], device: Iterable[DeviceEvent]) -> dict[int, int]:
    """Nanoseconds on the device of each call."""
    events = {event.correlation: event for event in host}
    ranges: dict[int, list[Range]] = {}
    for event in events.values():
        if event.name.startswith(PREFIX):
            found = Range(event.start, event.end, int(event.name.removeprefix(PREFIX)))
            ranges.setdefault(event.thread, []).append(found)
    for found_here in ranges.values():
        found_here.sort()
    times: dict[int, int] = {}
    for launched in device:
        event_or_none = events.get(launched.linked)
        if event_or_none is None:
            continue
        call = _innermost(ranges.get(event_or_none.thread, []), event_or_none.start)
        if call is not None:
            times[call] = times.get(call, 0) + launched.duration
    return times


def _innermost(ranges: list[Range], moment: int) -> int | None:
    """Of the ranges around a moment, the one that began last."""
    place = bisect_right(ranges, (moment, 1 << 63, 0)) - 1
    while place >= 0 and ranges[place].end < moment:
        place -= 1
    return ranges[place].call if place >= 0 else None


class TracedTimes:
    """Traces what the calls launch, and tells how long that ran."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell = tell
        self._here = threading.local()
        self._calls = 0
        self._profiler: Any = None

    def start(self) -> None:
        """Raises RuntimeError when another profiler is at work."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        if torch._C._autograd._profiler_enabled():  # torch 2.11 would silently take the trace away from it
            raise RuntimeError("it was started before this recording")
        self._profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        with BUS.mute():  # it is not the program's: its ranges are our own
            self._profiler.start()
        self._calls = 0

    def enter(self, call: int) -> None:
        from torch._C._profiler import _RecordFunctionFast  # no operator, so no mode sees it

        opened = _RecordFunctionFast(f"{PREFIX}{call}")
        opened.__enter__()
        if not hasattr(self._here, "opened"):
            self._here.opened = []
        self._here.opened.append(opened)

    def leave(self) -> None:
        opened = getattr(self._here, "opened", None)
        if opened:
            opened.pop().__exit__(None, None, None)
        self._calls += 1
        if self._calls >= _AT_MOST and not opened:
            self.stop()
            self.start()

    def stop(self) -> None:
        """Waits for the device."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        with BUS.mute():
            profiler.stop()
        events = profiler.profiler.kineto_results.events()
        host = [
            HostEvent(
                e.correlation_id(),
                e.start_thread_id(),
                e.start_ns(),
                e.start_ns() + e.duration_ns(),
                e.name(),
            )
            for e in events
            if not _is_device(e)
        ]
        device = [
            DeviceEvent(e.linked_correlation_id(), e.duration_ns())
            for e in events
            if _is_device(e) and not e.name().startswith(PREFIX)
        ]
        for call, nanoseconds in join(host, device).items():
            self._tell(call, nanoseconds)


class EventTimes:
    """Times between two events on the current stream, for when there is another profiler."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell = tell
        self._here = threading.local()
        self._pairs: list[tuple[int, Any, Any]] = []

    def start(self) -> None:
        """Nothing to prepare."""

    def enter(self, call: int) -> None:
        import torch

        if not hasattr(self._here, "opened"):
            self._here.opened = []
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._here.opened.append((call, event))

    def leave(self) -> None:
        import torch

        call, began = self._here.opened.pop()
        ended: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        ended.record()
        self._pairs.append((call, began, ended))
        if len(self._pairs) >= _AT_MOST:
            self._read([pair for pair in self._pairs if pair[2].query()])

    def stop(self) -> None:
        """Waits for the device."""
        for _, _, ended in self._pairs:
            ended.synchronize()
        self._read(self._pairs)

    def _read(self, pairs: list[tuple[int, Any, Any]]) -> None:
        for call, began, ended in pairs:
            self._tell(call, round(began.elapsed_time(ended) * 1e6))
        done = set(map(id, pairs))
        self._pairs = [pair for pair in self._pairs if id(pair) not in done]


def _is_device(event: Any) -> bool:
    return str(event.device_type()).endswith("CUDA")
