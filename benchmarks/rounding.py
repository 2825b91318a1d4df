"""What it costs to tell rounding from error: compare, diff --calibrate, invariance, precision, many ranks.

python benchmarks/rounding.py --threads 1
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the programs of the tests
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report
from _measure import machine, say, versions

import kernelscope
from kernelscope.compiler_control.forced_settings import without_caches

PAGE = _report.ROOT / "docs" / "compare.md"
SHARDED = _report.ROOT / "tests" / "integration" / "ranks" / "sharded_trials.py"
TRAINING = "two training steps of a two-layer transformer of width 32, eager"
CALL = "a call of the transformer in `examples/transformer.py`, "
COMPILING = "a call that compiles it without caches, with C++ that is built already"


def seconds(run: Callable[[], Any], times: int, clock: Callable[[], float] = time.process_time) -> float:
    """CPU time of all threads, unless told otherwise: other programs on the machine count less."""
    taken = []
    for _ in range(times):
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)


def row(name: str, against: str, bare: float, taken: float) -> dict[str, Any]:
    say(f"{name}: {taken:.3g} s against {bare:.3g} s")
    return {"name": name, "against": against, "bare": bare, "seconds": taken, "ratio": taken / bare}


def of_training(folder: Path) -> list[dict[str, Any]]:
    from tests.programs.training_programs import PLANTED, Setup

    program, low = PLANTED["scale"], Setup(torch.bfloat16)

    def recorded(name: str, setup: Setup) -> Path:
        with kernelscope.record(path=folder / name, values="save", ops="all") as run:
            program(setup, False)
        return Path(run.path)

    program(Setup(), False)
    bare = seconds(lambda: program(Setup(), False), 9)
    comparing = seconds(
        lambda: kernelscope.compare(lambda: program(Setup(), False), lambda: program(low, False)), 3
    )
    names = iter(range(100))
    recording = seconds(lambda: recorded(f"run-{next(names)}", Setup()), 3)
    first, second = recorded("float32", Setup()), recorded("bfloat16", low)
    calibrated = seconds(lambda: kernelscope.diff(first, second, calibrate=True), 3)
    return [
        row("`compare`: both programs", TRAINING, bare, comparing),
        row("`run --values save --ops all`, for `diff --calibrate`: each program", TRAINING, bare, recording),
        row("`diff --calibrate`: the two runs", TRAINING, bare, calibrated),
    ]


def of_calls() -> list[dict[str, Any]]:
    example = runpy.run_path(str(_report.ROOT / "examples" / "transformer.py"))
    torch.manual_seed(0)
    eager, words = example["Transformer"](), torch.randint(0, 50, (8, 8))
    model = torch.compile(eager)
    with torch.no_grad():
        model(words)
        torch.compiler.reset()
        with without_caches():
            compiling = seconds(lambda: model(words), 1)
        bare_eager = seconds(lambda: eager(words), 50)
        kernelscope.check_invariance(model, words)  # builds the C++ of each size
        invariance = seconds(lambda: kernelscope.check_invariance(model, words), 1)
        in_eager = seconds(lambda: kernelscope.check_invariance(eager, words, ops="all"), 3)
        measuring = seconds(lambda: kernelscope.precision_map(model, words, output="result 0", formats=[]), 1)
        tried = kernelscope.precision_map(model, words, output="result 0", formats=["bfloat16"]).what_ifs[0]
        waited = seconds(lambda: model(words), 50, time.perf_counter)  # as the search's own time is measured
    return [
        row("`invariance`: all sizes and places of 8 rows, compiled", COMPILING, compiling, invariance),
        row("`invariance --ops all`: the same, eager", f"{CALL}eager", bare_eager, in_eager),
        row("`precision`: errors and ranges", COMPILING, compiling, measuring),
        row("`precision`: each run of the search", f"{CALL}compiled", waited, tried.seconds / tried.runs),
    ]


def of_ranks(folder: Path) -> list[dict[str, Any]]:
    trials = runpy.run_path(str(SHARDED))
    words = [["0", "1"], ["0", "2"], ["1", "2"]]
    running = [
        subprocess.Popen([sys.executable, str(SHARDED), *each, str(folder), "save", "tp"]) for each in words
    ]
    ends = [process.wait() for process in running]
    if any(ends):
        raise SystemExit("the ranks failed")
    model, batch = trials["Model"](), (trials["BATCH"], trials["LENGTH"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens, expected = (torch.randint(trials["WORDS"], batch) for _ in range(2))

    def steps() -> None:
        for _ in range(2):
            logits = model(tokens).flatten(0, 1)
            torch.nn.functional.cross_entropy(logits, expected.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

    steps()
    bare = seconds(steps, 9)
    one, many = folder / "one.kscope", folder / "tp.kscope"
    comparing = seconds(lambda: kernelscope.diff_sharded(one, many), 3)
    program = "two training steps of a small transformer in one process, eager"
    return [row("`diff one sharded`: with two ranks, tensor parallel", program, bare, comparing)]


def table(result: dict[str, Any]) -> str:
    rows = [["what", "against", "bare", "time", "ratio"]]
    for each in result["rows"]:
        times = time_text(each["bare"]), time_text(each["seconds"])
        ratio = f"{each['ratio']:.2g}" if each["ratio"] < 10 else f"{each['ratio']:.0f}"
        rows.append([each["name"], each["against"], *times, ratio])
    return "\n".join([
        *_report.aligned(rows), "",
        "- CPU time (of the search of `precision`: time that passed), medians of a few repetitions in one "
        "run of the benchmark, while other programs used the machine: read the ratios as sizes, not as "
        "digits",
        "- the tensors are tiny: the time goes into each call, not into values",
        f"- machine: {machine('cpu')}",
        f"- versions: {versions()}",
    ])  # fmt: skip


def time_text(value: float) -> str:
    return f"{1000 * value:.2g} ms" if value < 0.0995 else f"{value:.2g} s"


def main() -> None:
    options: argparse.Namespace = _report.parser(__doc__, PAGE).parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ranks").mkdir()
        rows = [*of_training(Path(folder)), *of_calls(), *of_ranks(Path(folder) / "ranks")]
    result = {"rows": rows}
    _report.report(options, result, table(result), (PAGE, "rounding:costs"), lambda _: [])


if __name__ == "__main__":
    main()
