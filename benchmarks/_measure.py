"""Ratios that hold on a noisy machine, what a GPU can tell besides time, and what was measured on what."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

Count = Callable[[], int]  # of the calls logged so far

LEAST_STEPS, LEAST_SECONDS = 5, 0.35  # timed in one recording
SETTLING_SECONDS = 0.15  # at least: short steps would be timed while their plans are made
SETTLING = 2  # steps of each kind after the first, which has filled the processor's caches with other things
SPAN = "kernelscope: steps"
DEAR = 3  # a variant that makes a step so many times longer gets fewer steps and rounds
WAITS = {
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy2D"),
    *("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"),
}


@dataclass
class Variant:
    """One way to watch a step: entering `watch()` starts it, and gives the number of calls logged so far."""

    name: str
    key: str
    watch: Callable[[], AbstractContextManager[Count]]
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    calls: int = 0  # in one step
    steps: int = LEAST_STEPS
    first_seconds: list[float] = field(default_factory=list)  # of the first step in a recording
    opening_seconds: list[float] = field(default_factory=list)  # of a recording
    warm_up_seconds: float = 0.0  # of the first step in the first recording: with what it compiles
    every: int = 1  # takes part in each n-th round

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.ratios) < 2:
            return self.ratio, self.ratio
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high


class Bench:
    """Runs the variants of one step in turn: bare, A, bare, B, bare, …"""

    def __init__(
        self,
        step: Callable[[], None],
        device: str,
        clock: Callable[[], float] = time.perf_counter,
        kinds: int = 1,
    ) -> None:
        """`kinds` of steps take turns, each with shapes of its own: all settle before any is timed."""
        self._step = step
        self._kinds = kinds
        self._settling = SETTLING * kinds
        self._clock = clock
        self._wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self._steps = LEAST_STEPS
        self.bare_seconds: list[float] = []

    def warm_up(self, variants: list[Variant]) -> None:
        """Let every variant compile what it needs, and find out which are dear."""
        for _ in range(3):
            bare = self._bare()
        self._steps = self._whole(max(LEAST_STEPS, round(LEAST_SECONDS / bare)))
        for variant in variants:
            self._watched(variant, self._whole(2))  # what is planned compiles here
            variant.warm_up_seconds = variant.first_seconds[0]
            seconds = self._watched(variant, self._whole(2))
            variant.steps = self._steps
            if seconds > DEAR * bare:
                variant.steps, variant.every = self._whole(2), 4
            variant.first_seconds.clear()  # those compiled

    def rounds(self, variants: list[Variant], count: int) -> None:
        """Fill in each variant's times, and their ratios to the bare steps right before and after."""
        before = self._bare()
        for number in range(count):
            for variant in variants:
                if number % variant.every == 0:
                    seconds = self._watched(variant, variant.steps)
                    after = self._bare()
                    variant.seconds.append(seconds)
                    variant.ratios.append(2 * seconds / (before + after))
                    before = after
                    self.bare_seconds.append(after)

    def _whole(self, steps: int) -> int:
        """At least so many, and as many of each kind."""
        return -(-steps // self._kinds) * self._kinds

    def _bare(self) -> float:
        self._step()
        return self._seconds_per_step(self._steps)

    def _watched(self, variant: Variant, steps: int) -> float:
        start = time.perf_counter()
        with variant.watch() as count:
            variant.opening_seconds.append(time.perf_counter() - start)
            # The first step in a recording looks at each kernel closely, once.
            variant.first_seconds.append(self._seconds_per_step(1))
            settled = time.perf_counter() + SETTLING_SECONDS
            for number in itertools.count():
                if number >= self._settling and time.perf_counter() > settled:
                    break
                self._step()
            first = count()
            seconds = self._seconds_per_step(steps)
            variant.calls = (count() - first) // steps
        return seconds

    def _seconds_per_step(self, steps: int) -> float:
        self._wait()
        start = self._clock()
        for _ in range(steps):
            self._step()
        self._wait()
        return (self._clock() - start) / steps

    # -- on a GPU --------------------------------------------------------------------------------------

    def host_and_kernels(self, variant: Variant, steps: int = 5) -> tuple[float, float, float]:
        """Of a step: ms until the host has enqueued it, kernels and copies, and ms that the GPU is busy."""
        with variant.watch():
            for _ in range(1 + self._settling):
                self._step()
            self._wait()
            with unheard_trace() as kernels:
                for _ in range(steps):
                    self._step()
                self._wait()
            times = []
            for _ in range(steps):  # one by one, so that no queue is full
                start = time.perf_counter()
                self._step()
                times.append(time.perf_counter() - start)
                self._wait()
        return 1000 * statistics.median(times), len(kernels) / steps, sum(kernels) / 1e6 / steps

    def memory_and_waits(self, variant: Variant, steps: int = 3) -> tuple[float, float]:
        """The most MB allocated in a few steps, and how often the host waited in one (from a CUPTI trace)."""
        from torch._C._profiler import _RecordFunctionFast  # no operator, so no mode sees it
        from torch.profiler import ProfilerActivity, profile

        with variant.watch():
            for _ in range(1 + self._settling):
                self._step()
            self._wait()
            torch.cuda.reset_peak_memory_stats()
            for _ in range(steps):
                self._step()
            self._wait()
            peak = torch.cuda.max_memory_allocated() / 2**20
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
                with _RecordFunctionFast(SPAN):
                    for _ in range(steps):
                        self._step()
                self._wait()
        return peak, len(_waits_in_span(trace)) / steps


@contextmanager
def unheard_trace() -> Iterator[list[int]]:
    """Nanoseconds of each kernel, copy and fill of the GPU, once the block has ended.

    A recording that hears of a profiler opens ranges, and plans no hashes: so it is not told of this one.
    """
    from torch.autograd import (
        DeviceType,
        ProfilerActivity,
        _disable_profiler,
        _enable_profiler,
        _prepare_profiler,
    )

    found: list[int] = []
    config = torch.autograd.profiler.profile().config(create_trace_id=True)
    _prepare_profiler(config, {ProfilerActivity.CUDA})
    _enable_profiler(config, {ProfilerActivity.CUDA})
    try:
        yield found
    finally:
        events = _disable_profiler().events()
        found += [e.duration_ns() for e in events if e.device_type() == DeviceType.CUDA]
        assert found or not torch.cuda.is_available(), "the trace has no kernels; is CUPTI there?"


def _waits_in_span(trace: torch.profiler.profile) -> list[str]:
    """The runtime calls that make the host wait, while the steps ran."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    span = next(e for e in events if e.get("name") == SPAN and not e.get("cat", "").startswith("gpu"))
    start, end = span["ts"], span["ts"] + span["dur"]
    runtime = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    assert runtime, "the trace has no CUDA runtime calls; is CUPTI there?"
    return [e["name"] for e in runtime if e["name"] in WAITS and start <= e["ts"] <= end]


@contextmanager
def unwatched() -> Iterator[Count]:
    yield lambda: 0


def copy_bandwidth(device: str) -> float:
    """GB/s that a large copy moves, what it reads and what it writes."""
    source = torch.ones((1 << 30 if device == "cuda" else 1 << 26) // 4, device=device)
    target, wait = torch.empty_like(source), torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(12):
        wait()
        start = time.perf_counter()
        target.copy_(source)
        wait()
        times.append(time.perf_counter() - start)
    return 2 * source.nbytes / statistics.median(times[2:]) / 1e9


# -- what was measured on what --------------------------------------------------------------------------


def of_children() -> float:
    """CPU time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine(device: str) -> str:
    model = platform.processor() or platform.machine()
    told = os.popen("LC_ALL=C lscpu 2>/dev/null; cat /proc/cpuinfo 2>/dev/null").read()
    if found := re.search(r"model name\s*:\s*(.+)", told, re.IGNORECASE):
        model = found[1].strip()
    cpu = f"{model}, {os.cpu_count()} cores"
    return (
        f"{torch.cuda.get_device_name()}; {cpu}"
        if device == "cuda"
        else f"{cpu}, {torch.get_num_threads()} threads"
    )


def versions() -> str:
    import kernelscope

    try:
        import triton

        compiler = f"triton {triton.__version__}"
    except ImportError:
        compiler = "no triton"
    ours = f"kernelscope {kernelscope.__version__}"
    return f"{ours}, torch {torch.__version__}, {compiler}, Python {platform.python_version()}"


def say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)
