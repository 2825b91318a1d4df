"""Python's garbage collector waits while a CUDA graph is captured."""

from __future__ import annotations

import gc
import threading
from typing import Any


class GarbageWaits:
    """From the begin of a capture to the end of the last, nothing is collected by itself.

    An old CUDA graph may be among the garbage, and CUDA invalidates a capture in whose midst a graph is
    destroyed. What a recording keeps of the launches would make Python collect there, where it does not
    without a recording.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._captured: set[Any] = set()
        self._was_enabled = False

    def begin(self, graph: Any) -> None:
        with self._lock:
            if not self._captured:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._captured.add(graph)

    def end(self, graph: Any) -> None:
        """Its capture is over; it may have begun before the recording opened."""
        with self._lock:
            if graph in self._captured:
                self._captured.discard(graph)
                self._enable()

    def end_all(self) -> None:
        """The recording closes, perhaps within a capture."""
        with self._lock:
            if self._captured:
                self._captured.clear()
                self._enable()

    def _enable(self) -> None:
        if not self._captured and self._was_enabled:
            gc.enable()
