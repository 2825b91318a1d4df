"""Reports when torch's profilers start and stop, and opens ranges in their traces without an operator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from kernelscope.events import RANGE_PREFIX, STOPPED_RANGE
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_HOME = "torch.autograd.profiler"
_OVERHEAD = ("Activity Buffer Request", "Lazy Function Loading", "Runtime Triggered Module Loading")


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


class ProgramsOwnProfiler(PatchSet):
    """While installed, `before` is called when the program is about to start a profiler."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        # What it prepares before it starts ends the trace of another one.
        super().__init__(
            Patch(f"{_HOME}:profile._prepare_trace", self._giving_way),
            Patch(f"{_HOME}:_run_on_profiler_start", self._giving_way),
        )

    def _giving_way(self, original: Any) -> Any:
        def start(*args: Any) -> Any:
            if not BUS.here.muted:
                with contained("giving way to the program's own profiler"):
                    self._before()
            return original(*args)

        return start


class Printing(PatchSet):
    """While installed, printing a tensor is a range: torch computes there with modes set aside."""

    def __init__(self) -> None:
        super().__init__(Patch("torch._tensor_str:_str", self._around))

    def _around(self, original: Any) -> Any:
        def text_of(*args: Any, **kwargs: Any) -> Any:
            with range_if_profiled("the text of a tensor (print, repr)"):
                return original(*args, **kwargs)

        return text_of


class StoppedRecomputations(PatchSet):
    """While installed, torch.utils.checkpoint leaves a range in the operator at which it stops recomputing.

    It stops as soon as an operator saves its inputs, so that this operator has begun and computes nothing.
    """

    def __init__(self) -> None:
        super().__init__(Patch("torch.utils.checkpoint:_recomputation_hook.__init__", self._around))

    def _around(self, original: Any) -> Any:
        from torch.utils.checkpoint import _StopRecomputationError

        def init(hooks: Any, *args: Any, **kwargs: Any) -> None:
            original(hooks, *args, **kwargs)
            pack = hooks.pack_hook

            def packing(tensor: Any) -> Any:
                try:
                    return pack(tensor)
                except _StopRecomputationError:
                    with range_if_profiled(STOPPED_RANGE):
                        raise

            hooks.pack_hook = packing

        return init


class TraceEvent(NamedTuple):
    """An event of a profiler's trace; times in nanoseconds."""

    name: str
    thread: int
    start: int
    end: int
    correlation: int
    linked: int  # of an event on a device: the correlation of the operator or range that launched it
    kind: str  # as Kineto has it: cpu_op, user_annotation, cuda_runtime, kernel, gpu_memcpy, overhead …


def tracing() -> Any:
    """A profiler of all threads and, where there is a GPU, of what it executes."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    try:
        config = _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # this torch follows the thread that starts it, and autograd's
        config = None
    return profile(activities=activities, experimental_config=config)


def kineto_events(profiler: Any) -> list[TraceEvent]:
    """What a profiler that has been stopped has seen."""
    return [
        TraceEvent(
            e.name(), e.start_thread_id(), e.start_ns(), e.start_ns() + e.duration_ns(), e.correlation_id(),
            e.linked_correlation_id(), _kind(e),
        )
        for e in profiler.profiler.kineto_results.events()
    ]  # fmt: skip


def _kind(event: Any) -> str:
    if hasattr(event, "activity_type"):
        return str(event.activity_type())
    if not str(event.device_type()).endswith("CPU"):
        return "gpu_user_annotation" if event.is_user_annotation() else "kernel"
    name = str(event.name())
    if re.match(r"(cuda|cu|hip)[A-Z]", name):
        return "cuda_runtime"
    return "overhead" if name in _OVERHEAD else "cpu_op"


def profiler_is_running() -> bool:
    return bool(torch._C._autograd._profiler_enabled())


def unseen_range(name: str) -> Any:
    """A context: a range in the trace that is made without an operator, so that no mode sees it."""
    return torch._C._profiler._RecordFunctionFast(name)


def range_if_profiled(name: str) -> Any:
    """A range in the trace of the profiler that is running, if one is."""
    return unseen_range(name) if BUS.profiler else nullcontext()


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
