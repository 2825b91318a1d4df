"""CUDA graphs: what is launched during capture is a template, and executes at each replay.

Nothing Python happens between the kernels of a replay, so the calls of a replay are emitted from what was
seen at capture.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..events import Finding
from .bus import BUS
from .launch import Template
from .patching import Patch

_GRAPH = "torch.cuda:CUDAGraph"


class CudaGraphs:
    """The probe for capture and replay."""

    def __init__(self) -> None:
        self._patches = [
            Patch(f"{_GRAPH}.capture_begin", self._around_begin),
            Patch(f"{_GRAPH}.capture_end", self._around_end),
            Patch(f"{_GRAPH}.replay", self._around_replay),
        ]
        self._templates: weakref.WeakKeyDictionary[Any, list[Template]] = weakref.WeakKeyDictionary()
        self._replays: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        for patch in reversed(self._patches):
            patch.remove()
        BUS.capturing(None)
        self._templates.clear()
        self._replays.clear()

    def _around_begin(self, original: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._templates[graph] = []
            BUS.capturing(self._templates[graph])
            return original(graph, *args, **kwargs)

        return capture_begin

    def _around_end(self, original: Any) -> Any:
        def capture_end(graph: Any) -> Any:
            BUS.capturing(None)
            return original(graph)

        return capture_end

    def _around_replay(self, original: Any) -> Any:
        def replay(graph: Any) -> Any:
            result = original(graph)
            if not BUS.here.muted:
                self._emit(graph)
            return result

        return replay

    def _emit(self, graph: Any) -> None:
        templates = self._templates.get(graph)
        if templates is None:
            BUS.finding(
                Finding(
                    "unseen-cuda-graph",
                    "a CUDA graph that was captured before the recording opened was replayed; its kernels "
                    "are not seen. Open the recording before the first calls of the compiled function.",
                )
            )
            return
        number = self._replays.get(graph, 0)
        self._replays[graph] = number + 1
        BUS.replayed(templates, number)
