"""What compiled graphs return."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entered: list[int] = []  # graph calls, the innermost last


class GraphResults(PatchSet):
    """The probe: emits what each graph call returns; `begun` must be called when one begins."""

    def __init__(self, emit: Callable[[int, Sequence[Any]], None]) -> None:
        self._emit = emit
        self._here = _Thread()
        super().__init__(Patch(_CALL, self._around))

    def begun(self, graph_call: int) -> None:
        if self._here.entered:
            self._here.entered[-1] = graph_call

    def _around(self, original: Any) -> Any:
        here = self._here

        def call(compiled: Any, inputs: Any) -> Any:
            here.entered.append(-1)
            try:
                result = original(compiled, inputs)
                if here.entered[-1] >= 0 and isinstance(result, tuple | list):
                    with contained("looking at what a graph returns"):
                        self._emit(here.entered[-1], result)
                return result
            finally:
                here.entered.pop()

        return call
