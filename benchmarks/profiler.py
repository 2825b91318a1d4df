"""What it costs that recorded calls can be ranges in a profiler's trace: without a profiler, and with one.

    python benchmarks/profiler.py                # the table
    python benchmarks/profiler.py --check        # exit status 1 when it costs something without a profiler

The ways take turns in one process, and seconds are the processor's, which holds on a machine that has other
work. "Without the probe" is a recording that cannot hear of profilers: what there was before.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from _measure import machine, versions
from _report import parser, report
from torch.profiler import ProfilerActivity, profile

import kernelscope
from kernelscope.probes.eager.profilers import Profilers
from kernelscope.probes.probe_list import PROBES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "profiler.md"
LAYERS, STEPS, ROUNDS = 30, 20, 40
MOST = 1.03  # recording, beside recording without the probe
Watch = Callable[[], AbstractContextManager[Any]]


@contextmanager
def without_probe() -> Iterator[None]:
    always = PROBES.always
    PROBES.always = [probe for probe in always if not isinstance(probe, Profilers)]
    try:
        with kernelscope.record():
            yield
    finally:
        PROBES.always = always


@contextmanager
def both() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(kernelscope.record())
        stack.enter_context(profiler())
        yield


def profiler() -> profile:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    return profile(activities=activities)


# What is measured, and what it is held against.
WAYS: dict[str, tuple[Watch, str]] = {
    "bare": (nullcontext, "bare"),
    "record(), without the probe": (without_probe, "bare"),
    "record()": (kernelscope.record, "record(), without the probe"),
    "profiler": (profiler, "bare"),
    "profiler and record()": (both, "profiler"),
}


def work(device: str) -> Callable[[], None]:
    """A graph of small products: almost all of it is launching."""

    @torch.compile
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(LAYERS):
            x = (x @ x).relu()
        return x

    x = torch.full((8, 8), 0.1, device=device)

    def step() -> None:
        with torch.no_grad():
            chain(x)

    step()
    return step


def measure(device: str) -> dict[str, Any]:
    step = work(device)
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(ROUNDS):
        order = list(WAYS.items())
        for name, (watch, _) in order if number % 2 else reversed(order):
            with watch():
                for _ in range(3):  # the first execution is looked at closely, once
                    step()
                start = time.thread_time()
                for _ in range(STEPS):
                    step()
                seconds[name].append((time.thread_time() - start) / STEPS)
    with kernelscope.record() as run:
        step()
    ratios = {
        name: statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
        for name, (_, base) in WAYS.items()
    }
    return {
        "machine": machine(device),
        "versions": versions(),
        "launches": len(run),
        "ways": {
            name: {"us": 1e6 * statistics.median(seconds[name]), "beside": base, "ratio": ratios[name]}
            for name, (_, base) in WAYS.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    lines = [
        f"A graph of {result['launches']} small launches, processor time on the launching thread, median of "
        f"{ROUNDS} rounds. {result['machine']}; {result['versions']}.",
        "",
        "| | a step, µs | beside | ratio |",
        "|---|---|---|---|",
    ]
    for name, row in result["ways"].items():
        lines.append(f"| {name} | {row['us']:.0f} | {row['beside']} | {row['ratio']:.2f}× |")
    return "\n".join(lines)


def broken(result: dict[str, Any]) -> list[str]:
    ratio = result["ways"]["record()"]["ratio"]
    return [f"recording is {ratio:.3f}× one without the probe, more than {MOST}×"] if ratio > MOST else []


def main() -> None:
    options = parser(__doc__, PAGE).parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    result = measure(options.device)
    report(options, result, table(result), (PAGE, "benchmarks/profiler.py"), broken)


if __name__ == "__main__":
    main()
