"""Device time of each call: from Kineto's trace, by a range with the call's index, or from events."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kernelscope.events import RANGE_PREFIX as PREFIX
from kernelscope.probes.bus import BUS
from kernelscope.probes.eager.profilers import profiler_is_running, unseen_range

CALLS_IN_A_TRACE = 20_000  # calls in one trace: then it is read, and another one begins
_PATIENCE = 10  # times as many, while there is always a call of some thread under way


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
    ranges: dict[int, list[Range]] = defaultdict(list)  # by thread
    launched: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: when, and how long it ran
    for event in events.values():
        if event.name.startswith(PREFIX):
            call = int(event.name.removeprefix(PREFIX))
            ranges[event.thread].append(Range(event.start, event.end, call))
    for found in device:
        launcher = events.get(found.linked)
        if launcher is not None:
            launched[launcher.thread].append((launcher.start, found.duration))
    times: dict[int, int] = {}
    for thread, moments in launched.items():
        for call, duration in _in_ranges(ranges[thread], moments):
            times[call] = times.get(call, 0) + duration
    return times


def _in_ranges(ranges: list[Range], moments: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Each duration with the call it belongs to: of the ranges around its moment, the one that began last."""
    ranges.sort(key=lambda found: (found.start, -found.end, found.call))
    begun: list[Range] = []
    position = 0
    for moment, duration in sorted(moments):
        while position < len(ranges) and ranges[position].start <= moment:
            begun.append(ranges[position])
            position += 1
        while begun and begun[-1].end < moment:  # over for all later moments, too
            begun.pop()
        if begun:
            yield begun[-1].call, duration


class TracedTimes:
    """Traces what the calls launch, and tells how long that ran."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self._report = report
        self._here = threading.local()
        self._calls = 0  # in this trace
        self._running: set[int] = set()  # calls whose range is open, of all threads
        self._lock = threading.RLock()
        self._profiler: Any = None
        self._starter = 0  # thread

    def start(self) -> None:
        """Raises RuntimeError when another profiler is at work."""
        from torch.profiler import ProfilerActivity, profile

        if profiler_is_running():  # torch 2.11 would silently take the trace away from it
            raise RuntimeError("it was started before this recording")
        self._profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        with BUS.mute():  # it is not the program's: its ranges are our own
            self._profiler.start()
        self._calls, self._starter = 0, threading.get_ident()

    def enter(self, call: int) -> None:
        with self._lock:  # which waits while another thread changes to the next trace
            self._running.add(call)
        opened = unseen_range(f"{PREFIX}{call}")
        opened.__enter__()
        if not hasattr(self._here, "opened"):
            self._here.opened = []
        self._here.opened.append((call, opened))

    def leave(self) -> None:
        mine = getattr(self._here, "opened", None)
        call, opened = mine.pop() if mine else (-1, None)
        if opened is not None:
            opened.__exit__(None, None, None)
        with self._lock:
            self._running.discard(call)
            self._calls += 1
            # A range that is open when the trace ends would be lost.
            most = CALLS_IN_A_TRACE * _PATIENCE if self._running else CALLS_IN_A_TRACE
            if self._calls >= most and not mine and self._can_stop():
                self.stop()
                self.start()

    def _can_stop(self) -> bool:
        """Torch 2.11 lets only the thread that started a profiler stop it."""
        return self._profiler is not None and threading.get_ident() == self._starter

    def stop(self) -> None:
        """Waits for the device."""
        with self._lock:
            profiler, self._profiler = self._profiler, None
            if profiler is not None:
                with BUS.mute():
                    profiler.stop()
                self._read(profiler)

    def _read(self, profiler: Any) -> None:
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
            if call not in self._running:  # else it is a part of its time
                self._report(call, nanoseconds)


class EventTimes:
    """Times between two events on the current stream, for when there is another profiler."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self._report = report
        self._here = threading.local()
        self._pairs: list[tuple[int, Any, Any]] = []  # launching threads append
        self._enough = CALLS_IN_A_TRACE
        self._lock = threading.Lock()  # one reader at a time

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
        if len(self._pairs) >= self._enough:
            with self._lock:
                if len(self._pairs) >= self._enough:  # no other thread has read them meanwhile
                    self._read(wait=False)

    def stop(self) -> None:
        """Waits for the device."""
        with self._lock:
            self._read(wait=True)

    def _read(self, *, wait: bool) -> None:
        count = len(self._pairs)
        pairs, later = self._pairs[:count], []
        del self._pairs[:count]  # what other threads append meanwhile stays
        for call, began, ended in pairs:
            if wait:
                ended.synchronize()
            elif not ended.query():
                later.append((call, began, ended))
                continue
            self._report(call, round(began.elapsed_time(ended) * 1e6))
        self._pairs[:0] = later
        self._enough = len(later) + CALLS_IN_A_TRACE  # or each launch would ask for all of these again


def _is_device(event: Any) -> bool:
    return str(event.device_type()).endswith("CUDA")
