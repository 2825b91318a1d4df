"""Where one step ends: `optimizer.step()`.

Every torch optimizer wraps its step in a profiler range of a known name. Hooking the range, unlike a global
optimizer hook, leaves nothing for Dynamo to trace or guard on when the step itself is compiled.
"""

from __future__ import annotations

from typing import Any

from kernelscope.probes.bus import BUS
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.patching import Patch, PatchSet

_RANGE = "torch.autograd.profiler:record_function"
_STEP = "Optimizer.step#"


class OptimizerSteps(PatchSet):
    """The probe that marks steps, and shows profiler ranges between calls."""

    def __init__(self) -> None:
        super().__init__(
            Patch(f"{_RANGE}.__enter__", self._around_enter),
            Patch(f"{_RANGE}.__exit__", self._around_exit),
        )

    def _around_enter(self, original: Any) -> Any:
        def enter(profiler_range: Any) -> Any:
            here = BUS.here
            if not here.muted:
                try:
                    if profiler_range.name.startswith(_STEP):
                        here.optimizer += 1
                    BUS.mark("record_function", profiler_range.name)
                except Exception:
                    BUS.finding(own_fault("noting the beginning of a profiler range"))
            return original(profiler_range)

        return enter

    def _around_exit(self, original: Any) -> Any:
        def leave(profiler_range: Any, *error: Any) -> Any:
            try:
                return original(profiler_range, *error)
            finally:
                here = BUS.here
                try:
                    name = profiler_range.name
                    if not here.muted:
                        BUS.mark("record_function end", name)
                    if here.optimizer and name.startswith(_STEP):
                        here.optimizer -= 1
                        if not here.optimizer and error[:1] == (None,):
                            BUS.step()
                except Exception:
                    BUS.finding(own_fault("noting the end of a profiler range"))

        return leave
