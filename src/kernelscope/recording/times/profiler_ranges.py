"""The calls of a recording as ranges in the trace of a profiler that is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kernelscope.events import CAPTURED_RANGE, COMPACT_CALL, Call, CompactCall, range_name
from kernelscope.probes.bus import BUS
from kernelscope.probes.eager.profilers import close_range, open_range, range_if_profiled, say_which_run
from kernelscope.recording.sinks import Sink

Note = Callable[[CompactCall], Any]


def as_captured_launch(func: Callable[..., Any]) -> Callable[..., Any]:
    """The same in a range: it becomes a call when its CUDA graph is replayed."""

    def captured(*args: Any, **kwargs: Any) -> Any:
        with range_if_profiled(CAPTURED_RANGE):
            return func(*args, **kwargs)

    return captured


class ProfilerRanges:
    """Opens a range before a call and closes it after; of use only while `BUS.profiler` is not 0."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._announced = 0  # which profiler knows whose calls these are
        self._here = threading.local()
        self.opened: dict[int, Any] = {}  # by key of the call

    def enter(self, call: Call) -> None:
        self.opened[call.key] = self._open(self._sink.position(call), call.site.kernel.name)

    def leave(self, call: Call) -> None:
        opened = self.opened.pop(call.key, None)
        if opened is not None:  # otherwise the profiler started inside of this call
            close_range(opened)

    def around(self, note: Note) -> Note:
        """The same for launches that are noted; what it returns closes the range."""

        def noted(entry: CompactCall) -> Any:
            steady = BUS.steady_sites.get(COMPACT_CALL.unpack(entry)[0])
            end = note(entry)
            if steady is None:
                return end
            index = self._sink.noted_position(entry, end)
            if index < 0:
                return end
            self._here.noted = opened = self._open(index, steady.site.kernel.name)

            def leave() -> None:
                self._here.noted = None
                close_range(opened)
                if end is not None:
                    end()

            return leave

        return noted

    def failed(self) -> None:
        """A graph raised: a noted launch that did it does not come to its end."""
        opened = getattr(self._here, "noted", None)
        if opened is not None:
            self._here.noted = None
            close_range(opened)

    def _open(self, index: int, kernel: str) -> Any:
        if self._announced != BUS.profiler:
            self._announced = BUS.profiler
            say_which_run(self._sink.run.info.uuid)
        return open_range(range_name(index, kernel))
