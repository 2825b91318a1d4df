"""What compiled graphs return."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet

_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entered: list[int] = []  # graph calls, the innermost last


class GraphResults(PatchSet):
    """The probe: tells of each graph that returns, with the number of its call.

    `begun` must be told when a graph call begins: the number is given inside of what is wrapped here.
    """

    def __init__(self, tell: Callable[[int, Sequence[Any]], None]) -> None:
        self._tell = tell
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
                    self._tell(here.entered[-1], result)
                return result
            finally:
                here.entered.pop()

        return call
