"""The calls of a recording as ranges in the trace of a profiler that is at work."""

from __future__ import annotations

from typing import Any

from .events import Call, range_name
from .probes.bus import BUS
from .probes.profilers import close_range, open_range, say_which_run
from .sinks import Sink


class ProfilerRanges:
    """Opens a range before a call and closes it after; of use only while `BUS.profiler` is not 0."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._told = 0  # which profiler knows whose calls these are
        self.opened: dict[int, Any] = {}  # by key of the call

    def enter(self, call: Call) -> None:
        if self._told != BUS.profiler:
            self._told = BUS.profiler
            say_which_run(self._sink.run.info.uuid)
        index = self._sink.place(call)
        self.opened[call.key] = open_range(range_name(index, call.site.kernel.name))

    def leave(self, call: Call) -> None:
        opened = self.opened.pop(call.key, None)
        if opened is not None:  # the profiler started inside of this call
            close_range(opened)
