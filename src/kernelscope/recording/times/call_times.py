"""How long calls take: on the host by its clock, on a GPU from a profiler's trace or from events."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from kernelscope.events import Call, Finding
from kernelscope.probes.launch import Launch
from kernelscope.recording.sinks import Sink

from .device_times import EventTimes, TracedTimes


class CallTimes:
    """The times of a recording's calls."""

    def __init__(self, sink: Sink, finding: Callable[[Finding], None]) -> None:
        self._sink = sink
        self._finding = finding
        self.on_device: TracedTimes | EventTimes | None = None

    def start(self) -> None:
        if not torch.cuda.is_available():
            return
        self.on_device = TracedTimes(self._sink.took)
        try:
            self.on_device.start()
        except RuntimeError as error:
            self.on_device = EventTimes(self._sink.took)
            self._finding(
                Finding(
                    "times-from-events",
                    "another profiler is running, so GPU times are measured between two events on the stream "
                    f"and include waiting ({error})",
                )
            )

    def enter(self, call: Call) -> None:
        call.start_ns = time.monotonic_ns()  # after our own work
        if self.on_device is not None:
            self.on_device.enter(call.index)

    def leave(self, launch: Launch, call: Call) -> None:
        """On the host it is known now; GPU times are reported later."""
        if launch.point.is_past:
            call.start_ns, call.duration_ns = launch.start_ns, launch.kwargs["took_ns"]
            return
        if launch.point.cuda_index < 0:
            call.duration_ns = time.monotonic_ns() - call.start_ns
        if self.on_device is not None:
            self._sink.awaits_time(call)
            self.on_device.leave()

    def stop(self) -> None:
        if self.on_device is None:
            return
        try:
            self.on_device.stop()
        except RuntimeError as error:  # a fault of the device has ended the trace
            self._finding(Finding("no-device-times", f"the trace could not be read: {error}"))
