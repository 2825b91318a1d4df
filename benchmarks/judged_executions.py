"""What it costs to compare functions with eager in later executions, too, rather than in the first alone.

python benchmarks/judged_executions.py --threads 1    print the table
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import _report
from _measure import machine, versions
from _workloads import Block

import kernelscope
from kernelscope.shadowing.regions.region import Executions

PAGE = _report.ROOT / "docs" / "shadow.md"
STEPS = 16  # of one run: six of them are compared as a whole (1 to 4, 8, 16), or the first alone


class Runs:
    """Lets the counting of executions begin anew, without compiling again."""

    def __init__(self) -> None:
        self.number = 0
        self.only_first = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        original = Executions.is_next_compared

        def is_next(executions: Executions, run: int, args: Sequence[Any]) -> bool:
            is_compared = original(executions, self.number, args)
            return is_compared and (executions.is_first or not self.only_first)

        with mock.patch.object(Executions, "is_next_compared", is_next):
            yield

    def time(self, step: Callable[[], None], *, only_first: bool) -> float:
        self.number += 1
        self.only_first = only_first
        start = time.process_time()
        for _ in range(STEPS):
            step()
        return time.process_time() - start


def training(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(x).square().mean().backward()

    return step


def inference(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    compiled = torch.compile(model)

    def step() -> None:
        with torch.no_grad():
            compiled(x)

    return step


def convolutions() -> nn.Module:
    layers = [nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(10))


def workloads(device: str) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    images, tokens = torch.randn(8, 3, 32, 32, device=device), torch.randn(4, 64, 128, device=device)
    net = convolutions().to(device)
    net(images)
    return {
        "transformer block, training": training(Block(128, 4, causal=True).to(device), tokens),
        "four convolutions with batch norm, training": training(net, images),
        "transformer block, inference": inference(Block(128, 4, causal=True).to(device), tokens),
    }


def measure(name: str, step: Callable[[], None], rounds: int) -> dict[str, Any]:
    torch._dynamo.reset()
    runs = Runs()
    default, first = list[float](), list[float]()
    with runs.installed(), kernelscope.shadow() as result:
        start = time.process_time()
        step()
        compiling = time.process_time() - start
        for only_first in (False, True):
            runs.time(step, only_first=only_first)
        for number in range(rounds):
            for only_first in (False, True) if number % 2 else (True, False):
                (first if only_first else default).append(runs.time(step, only_first=only_first))
            print(f"{name}: {default[-1]:.2f} s and {first[-1]:.2f} s", file=sys.stderr, flush=True)
    ours, theirs = statistics.median(default), statistics.median(first)
    return {
        "name": name,
        "compiling": compiling,
        "default": ours,
        "first": theirs,
        "ratio": statistics.median(a / b for a, b in zip(default, first, strict=True)),
        "with_compiling": (compiling + ours) / (compiling + theirs),
        "wrong": bool(result),
    }


def table(result: dict[str, Any]) -> str:
    head = ["program", "first, and compiling", "default", "only the first", "ratio", "with compiling"]
    rows = [
        [
            each["name"],
            *(f"{each[key]:.2f} s" for key in ("compiling", "default", "first")),
            f"{each['ratio']:.2f}×",
            f"{each['with_compiling']:.2f}×",
        ]
        for each in result["programs"]
    ]
    return "\n".join(
        [
            f"- machine: {result['machine']}",
            f"- versions: {result['versions']}",
            f"- CPU time of {STEPS} steps, six of which are compared as a whole, or one; medians of "
            f"{result['rounds']} interleaved rounds",
            "",
            *_report.aligned([head, *rows]),
        ]
    )


def main() -> None:
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    programs = [measure(*each, options.rounds) for each in workloads(options.device).items()]
    result = {
        "programs": programs,
        "rounds": options.rounds,
        "machine": machine(options.device),
        "versions": versions(),
    }
    mark = PAGE, f"executions:{options.device}"
    _report.report(options, result, table(result), mark, lambda found: [])


if __name__ == "__main__":
    main()
