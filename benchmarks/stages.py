"""What `record(stages=True)` adds to a cold compile, and to the steps after it.

    python benchmarks/stages.py                  # the table
    python benchmarks/stages.py --check          # exit status 1 when it costs more than was promised

Each compile starts with an empty cache of its own. Bare and recorded compiles take turns in one process, and
which comes first changes each round. Compiling is also measured in CPU time, of this process
and of the C++ compilers that it starts: that holds on a machine that has other work.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from _report import parser, report
from _workloads import Block
from torch._inductor.utils import fresh_inductor_cache

import kernelscope

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "stages.md"
MOST = 1.10  # a cold compile with stages, beside a bare one
MOST_AFTER = 1.02  # a step in a recording with stages, beside one in a recording without
Watch = Callable[[], AbstractContextManager[Any]]
WAYS: dict[str, Watch] = {
    "bare": nullcontext,
    "record()": kernelscope.record,
    "record(stages=True)": lambda: kernelscope.record(stages=True),
}


def training_step(device: str, layers: int) -> Callable[[], None]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block(64, 4, causal=True) for _ in range(layers))).to(device)
    compiled, x = torch.compile(model), torch.randn(2, 16, 64, device=device)

    def step() -> None:
        compiled(x).square().mean().backward()

    return step


@contextmanager
def clock(into: dict[str, list[tuple[float, float]]], name: str) -> Iterator[None]:
    gc.collect()
    wall, cpu = time.perf_counter(), cpu_seconds()
    yield
    into[name].append((time.perf_counter() - wall, cpu_seconds() - cpu))


def cpu_seconds() -> float:
    """Of this process and of those it has started and waited for."""
    return sum(os.times()[:4])


def compile_in_turns(device: str, layers: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for number in range(-1, rounds):  # the first one builds precompiled headers, and is not counted
        names = list(WAYS) if number % 2 else list(reversed(WAYS))
        for name in names:
            torch._dynamo.reset()
            step = training_step(device, layers)
            with fresh_inductor_cache(), WAYS[name](), clock(seconds, name):
                step()
                if device == "cuda":
                    torch.cuda.synchronize()
        if number < 0:
            seconds = {name: [] for name in WAYS}
    return seconds


def steps_after(device: str, layers: int, rounds: int) -> float:
    """Steps of a compiled model, in a recording with stages beside one without.

    On a CPU in CPU time: otherwise other work on the machine would dominate.
    """
    now = time.perf_counter if device == "cuda" else time.process_time
    torch._dynamo.reset()
    step, ratios = training_step(device, layers), []
    step()
    for _ in range(rounds):
        taken = []
        for stages in (False, True, False):
            with kernelscope.record(stages=stages):
                for _ in range(5):
                    step()
                start = now()
                for _ in range(20):
                    step()
                taken.append(now() - start)
        ratios.append(2 * taken[1] / (taken[0] + taken[2]))
    return statistics.median(ratios)


def measure(device: str, layers: int, rounds: int) -> dict[str, Any]:
    seconds = compile_in_turns(device, layers, rounds)
    bare = seconds["bare"]
    ways = {}
    for name, taken in seconds.items():
        ratios = [[mine[i] / other[i] for mine, other in zip(taken, bare, strict=True)] for i in (0, 1)]
        ways[name] = {
            "seconds": statistics.median(t[0] for t in taken),
            "cpu_seconds": statistics.median(t[1] for t in taken),
            "ratio": statistics.median(ratios[0]),
            "cpu_ratio": statistics.median(ratios[1]),
        }
    return {
        "device": device,
        "layers": layers,
        "rounds": rounds,
        "ways": ways,
        "steps_after": steps_after(device, layers, max(5, rounds)),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}",
        "versions": f"torch {torch.__version__}, Python {platform.python_version()}",
        "load": os.getloadavg()[0],
    }


def table(result: dict[str, Any]) -> str:
    lines = [
        "| | cold compile | CPU time | × bare | × bare, CPU time |",
        "|---|---|---|---|---|",
    ]
    for name, way in result["ways"].items():
        lines.append(
            f"| {name} | {way['seconds']:.2f} s | {way['cpu_seconds']:.2f} s | {way['ratio']:.3f} | "
            f"{way['cpu_ratio']:.3f} |"
        )
    lines.append("")
    lines.append(
        f"Forward and backward of {result['layers']} transformer blocks on {result['device']}, median of "
        f"{result['rounds']} rounds; {result['machine']}, {result['versions']}, load {result['load']:.1f}. "
        f"A later step takes {result['steps_after']:.3f}× one in a recording without stages."
    )
    return "\n".join(lines)


def broken(result: dict[str, Any]) -> list[str]:
    found, way = [], result["ways"]["record(stages=True)"]
    # Beside other work only the processor's seconds tell something.
    is_busy = result["load"] > (os.cpu_count() or 1)
    ratio = way["cpu_ratio"] if is_busy else max(way["ratio"], way["cpu_ratio"])
    if ratio > MOST:
        found.append(f"a cold compile with stages costs {ratio:.3f}×, not {MOST}×")
    if result["steps_after"] > MOST_AFTER:
        found.append(f"a step after compiling costs {result['steps_after']:.3f}×, not {MOST_AFTER}×")
    return found


def main() -> None:
    options = parser(__doc__, PAGE)
    options.add_argument("--layers", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    result = measure(given.device, given.layers, given.rounds)
    report(given, result, table(result), (PAGE, f"stages:{given.device}"), broken)


if __name__ == "__main__":
    main()
