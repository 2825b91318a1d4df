"""The gcu backend against eager and Inductor, as ratios in one run; `--write-docs` updates docs/gcu.md."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from _measure import machine, versions  # noqa: E402
from _report import write_table  # noqa: E402
from examples.gcu_models import Mlp, TransformerBlock  # noqa: E402

DOCS = Path(__file__).parents[1] / "docs" / "gcu.md"


@dataclass
class Case:
    name: str
    run: Callable[[], object]  # eager
    goal: float
    others: dict[str, Callable[[], object]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)  # CPU time of this thread

    def ratio(self, name: str, of: str = "eager") -> float:
        """How many times faster than another."""
        return quartile(self.seconds[of]) / quartile(self.seconds[name])


def compared(
    name: str,
    program: Callable[..., Any],
    used: Callable[[Callable[..., Any]], Callable[[], object]],
    goal: float,
) -> Case:
    """A program as it is and compiled, each as `used` makes something to measure of it."""
    case = Case(name, used(program), goal)
    for backend in ("gcu", "inductor"):
        torch._dynamo.reset()
        case.others[backend] = used(torch.compile(program, backend=backend))
        case.others[backend]()
    return case


def function(name: str, f: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...], goal: float) -> Case:
    return compared(name, f, lambda run: lambda: run(*args), goal)


def inference(name: str, model: torch.nn.Module, x: torch.Tensor, goal: float) -> Case:
    return compared(name, model, lambda run: torch.no_grad()(lambda: run(x)), goal)


def step(name: str, model: torch.nn.Module, x: torch.Tensor, goal: float) -> Case:
    def trains(run: Callable[..., torch.Tensor]) -> Callable[[], object]:
        def once() -> None:
            run(x).square().mean().backward()
            for p in model.parameters():
                p.grad = None

        return once

    return compared(name, model, trains, goal)


def cases() -> list[Case]:
    torch.manual_seed(0)
    wide, rows = torch.randn(2048, 2048), torch.randn(2048, 1024)
    scale, shift = torch.randn(2048), torch.randn(2048)
    return [
        function("gelu(x·w + b), 4M elements", lambda x, w, b: F.gelu(x * w + b), (wide, scale, shift), 1.3),
        function(
            "tanh(x·w + b)·σ(x) + x, 4M elements",
            lambda x, w, b: torch.tanh(x * w + b) * torch.sigmoid(x) + x, (wide, scale, shift), 1.3,
        ),
        function("softmax 2048×1024", lambda x: torch.softmax(x, -1), (rows,), 1.0),
        function(
            "layer norm 2048×1024",
            lambda x, w, b: F.layer_norm(x, (1024,), w, b), (rows, scale[:1024], shift[:1024]), 1.0,
        ),
        function("sum over rows 2048×2048", lambda x: x.sum(0), (wide,), 0.0),
        function(
            "tanh, sin, sigmoid, exp, log1p, std 2048×2048",
            lambda x: x.tanh().sin().sigmoid().exp().log1p().std(-1), (wide,), 0.0,
        ),
        inference("transformer block, 8×128×256", TransformerBlock(256, 4), torch.randn(8, 128, 256), 0.91),
        step("MLP 256→1024→256 step, batch 128", Mlp(256, 1024, 256), torch.randn(128, 256), 0.0),
        step("transformer block step, 8×128×256", TransformerBlock(256, 4), torch.randn(8, 128, 256), 0.95),
    ]  # fmt: skip


def measure(case: Case, rounds: int) -> None:
    """Each round runs every variant once or more, one after the other, so that noise hits all."""
    runs = {"eager": case.run, **case.others}
    for run in runs.values():
        run()
    start = time.thread_time()
    case.run()
    repeat = max(1, int(0.02 / max(1e-6, time.thread_time() - start)))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.thread_time()
            for _ in range(repeat):
                run()
            case.seconds.setdefault(name, []).append((time.thread_time() - start) / repeat)


def tracing_off(rounds: int) -> float:
    """How much longer a compiled graph takes when tracing is off than when it was never set up."""
    from kernelscope.gcu.debug_tracer import DebugTraceConfig, enable_debug_tracing, follow_environment

    x = torch.randn(512, 512)
    functions = {}
    for name, config in (("never", None), ("off", DebugTraceConfig(enabled=False))):
        torch._dynamo.reset()
        if config is not None:
            enable_debug_tracing(config)
        compiled = torch.compile(lambda x: F.gelu(x) + 1, backend="gcu")
        compiled(x)
        functions[name] = compiled
        follow_environment()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(5 * rounds):
        for name, run in functions.items():
            start = time.thread_time()
            for _ in range(10):
                run(x)
            times[name].append(time.thread_time() - start)
    return quartile(times["off"]) / quartile(times["never"])


def quartile(seconds: list[float]) -> float:
    """The lower one: what disturbs mostly adds time, and a single lucky round counts little."""
    return statistics.quantiles(seconds, n=4, method="inclusive")[0]


def table(measured: list[Case], tracing: float) -> str:
    lines = [
        "| | eager, ms | gcu ÷ eager | Inductor ÷ eager | gcu ÷ Inductor | goal, of eager |",
        "|---|---|---|---|---|---|",
    ]
    for case in measured:
        eager = 1e3 * quartile(case.seconds["eager"])
        goal = f"≥ {case.goal}" if case.goal else ""
        speed = " | ".join(
            f"{ratio:.2f}"
            for ratio in (case.ratio("gcu"), case.ratio("inductor"), case.ratio("gcu", "inductor"))
        )
        lines.append(f"| {case.name} | {eager:.2f} | {speed} | {goal} |")
    return "\n".join(
        [
            *lines,
            "",
            "Speed by that of another, higher is faster: CPU time of the one thread that runs "
            "(`time.thread_time`), lower quartile of many rounds in which all take turns. With tracing off a "
            "compiled graph "
            f"takes {tracing:.3f} times what it takes when tracing was never set up.",
            f"Machine: {machine('cpu')}, {torch.backends.cpu.get_cpu_capability()}; {versions()}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--write-docs", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)  # the clock is that of one thread
    measured = cases()
    for case in measured:
        measure(case, given.rounds)
    text = table(measured, tracing_off(given.rounds))
    print(text)
    if given.write_docs:
        write_table(DOCS, "gcu", text)


if __name__ == "__main__":
    main()
