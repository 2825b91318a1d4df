"""Graphs whose wrapper is an FX graph (`config.fx_wrapper`): its operators are seen as they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelscope.probes.eager.eager_operators import OperatorMode


class FxWrapped:
    """A graph with an FX wrapper, with the interface of a hooked Python wrapper."""

    def __init__(self, *, optimizes: bool, is_cuda: bool) -> None:
        self.optimizes = optimizes
        self.is_cuda = is_cuda
        self.aot_name = ""
        self.settled: object = None
        self.namespace: dict[str, Any] = {}
        self._mode = OperatorMode("extern", "inductor", inside_graphs=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._mode:
            yield

    def follow(self, ended: int = -1) -> None: ...
    def look_at(self, inputs: Any) -> None: ...
    def restore(self) -> None: ...
    def line_in(self, error: BaseException) -> int:
        return 0
