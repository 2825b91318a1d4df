"""Reports when torch's profilers start and stop, and opens ranges in their traces without an operator."""

from __future__ import annotations

import json
from typing import Any

import torch

from kernelscope.events import RANGE_PREFIX
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_HOME = "torch.autograd.profiler"


class Profilers(PatchSet):
    """The probe that tells the bus of torch's profilers."""

    def __init__(self) -> None:
        super().__init__(
            Patch(f"{_HOME}:_run_on_profiler_start", lambda original: self._around(original, True)),
            Patch(f"{_HOME}:_run_on_profiler_stop", lambda original: self._around(original, False)),
        )

    def install(self) -> None:
        from torch.autograd import profiler

        super().install()
        if getattr(profiler, "_is_profiler_enabled", False):  # it was at work before the recording
            BUS.profiled(True)

    def remove(self) -> None:
        super().remove()
        BUS.profiled(False)

    def _around(self, original: Any, is_start: bool) -> Any:
        def told() -> Any:
            if not BUS.here.muted:  # our own, or one that times candidates
                with contained("noting that a profiler started or stopped"):
                    BUS.profiled(is_start)
            return original()

        return told


def profiler_is_running() -> bool:
    return bool(torch._C._autograd._profiler_enabled())


def unseen_range(name: str) -> Any:
    """A context: a range in the trace that is made without an operator, so that no mode sees it."""
    return torch._C._profiler._RecordFunctionFast(name)


def open_range(name: str) -> Any:
    from torch.autograd import _record_function_with_args_enter  # type: ignore[attr-defined]

    return _record_function_with_args_enter(name)


def close_range(opened: Any) -> None:
    from torch.autograd import _record_function_with_args_exit  # type: ignore[attr-defined]

    _record_function_with_args_exit(opened)


def say_which_run(uuid: str) -> None:
    """Beside the events of the trace, where it is one of Kineto's."""
    from torch._C import _autograd
    from torch._C._profiler import ActiveProfilerType

    if _autograd._profiler_type() == ActiveProfilerType.KINETO:
        _autograd._add_metadata_json(f"kernelscope {uuid}", json.dumps({"ranges": RANGE_PREFIX}))
