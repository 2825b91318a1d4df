"""What shadowing costs: a step of a transformer block, against compiled, eager and float64 in the same run.

python benchmarks/shadow.py            print the table
python benchmarks/shadow.py --check    exit status 1 above the promised 1.3×
python benchmarks/shadow.py --cpu-time measure CPU time, on a machine that others use too
python benchmarks/shadow.py --size 1024,16,8,512    another width, number of heads, batch and length
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report
from _measure import machine, versions
from _workloads import Block

import kernelscope

PAGE = _report.ROOT / "docs" / "shadow.md"
Clock = Callable[[], float]
MOST = 1.3  # × compiled + eager + float64
# Width, heads, batch, length: large enough that the device computes, and does not wait for launches.
SIZES = {"cpu": (256, 8, 8, 128), "cuda": (4096, 32, 4, 1024)}


def steps(device: str, size: tuple[int, ...]) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    width, heads, batch, length = size
    model = Block(width, heads, causal=True).to(device)
    wide = copy.deepcopy(model).double()
    x = torch.randn(batch, length, width, device=device)
    wide_x = x.double()
    compiled = torch.compile(model)

    def step(run: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, owner: Any) -> None:
        owner.zero_grad()
        run(given).square().mean().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return {
        "compiled": lambda: step(compiled, x, model),
        "eager": lambda: step(model, x, model),
        "float64": lambda: step(wide, wide_x, wide),
    }


def seconds(step: Callable[[], None], clock: Clock) -> float:
    start = clock()
    step()
    return clock() - start


def measure(device: str, size: tuple[int, ...], rounds: int, most: float, clock: Clock) -> dict[str, Any]:
    """At most `most` seconds for the steps under shadow, and as many for the others, but three rounds."""
    taken: dict[str, list[float]] = {"compiled": [], "eager": [], "float64": [], "shadow": []}

    def rounds_of(compiled: str) -> int:
        end = time.perf_counter() + most
        for done in range(rounds):
            if done >= 3 and time.perf_counter() > end:
                return done
            for name in (compiled, "eager", "float64"):
                step = workload["compiled" if name == compiled else name]
                taken[name].append(seconds(step, clock))
            progress(f"round {done}: {compiled} {1000 * taken[compiled][-1]:.1f} ms")
        return rounds

    progress("compiling, and comparing the steps of the compiler")
    with kernelscope.shadow() as result:
        workload = steps(device, size)
        for _ in range(2):  # the first judges the compiler's stages too
            progress(f"first executions: {seconds(workload['compiled'], time.perf_counter):.1f} s")
            workload["eager"]()
            workload["float64"]()
        shadowed = rounds_of("shadow")
    workload["compiled"]()
    rounds_of("compiled")  # the same compiled step, now that nobody looks
    median = {name: statistics.median(values) for name, values in taken.items()}
    return {
        "device": device,
        "size": size,
        "seconds": median,
        "ratio": median["shadow"] / sum(median[name] for name in workload),
        "over_eager": median["shadow"] / median["eager"],
        "rounds": shadowed,
        "time": "CPU time" if clock is time.process_time else "time",
        "launches": result.counts.launches // (shadowed + 2),
        "buffers": result.counts.buffers // (shadowed + 2),
        "wrong": bool(result),
        "machine": machine(device),
        "versions": versions(),
    }


def progress(text: str) -> None:
    """As it goes: a run that is cut off has told something."""
    print(text, file=sys.stderr, flush=True)


def table(result: dict[str, Any]) -> str:
    rows = [f"| {name} | {1000 * value:.1f} ms |" for name, value in result["seconds"].items()]
    width, heads, batch, length = result["size"]
    return "\n".join(
        [
            f"- workload: training step of one transformer block: width {width}, {heads} heads, f32, batch "
            f"{batch}×{length}; {result['launches']} launches, {result['buffers']} buffers judged a step",
            f"- machine: {result['machine']}",
            f"- versions: {result['versions']}",
            f"- rounds: {result['rounds']}, medians of {result['time']}",
            "",
            "| step | |",
            "|---|---|",
            *rows,
            "",
            f"Shadow is {result['ratio']:.2f}× compiled + eager + float64 (promised: at most {MOST}×), "
            f"{result['over_eager']:.1f}× eager.",
        ]
    )


def broken_promises(result: dict[str, Any]) -> list[str]:
    found = []
    if result["ratio"] > MOST:
        found.append(f"shadow costs {result['ratio']:.2f}× of the three steps, and {MOST}× was promised")
    if result["wrong"]:
        found.append("shadow found something wrong in a clean program")
    return found


def main() -> None:
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=12, help="most for the rounds of one kind")
    parser.add_argument("--size", help="width, heads, batch and length, with commas between them")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of the process")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    size = tuple(map(int, options.size.split(","))) if options.size else SIZES[options.device]
    result = measure(options.device, size, options.rounds, options.seconds, clock)
    _report.report(options, result, table(result), (PAGE, f"shadow:{options.device}"), broken_promises)


if __name__ == "__main__":
    main()
