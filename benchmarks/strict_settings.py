"""What Inductor's strict settings cost: a training step with each of them, against the same step without.

python benchmarks/strict_settings.py
"""

from __future__ import annotations

import argparse
import copy
import runpy
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

import kernelscope
from kernelscope.compiler_control.cautious_settings import CAUTIOUS

PAGE = _report.ROOT / "docs" / "precision.md"
PREFIX = "torch._inductor.config."
SETTINGS = {
    "emulate_precision_casts": "rounds where eager would, inside fused kernels",
    "eager_numerics.division_rounding": "divides as eager does (Triton)",
    "eager_numerics.disable_ftz": "keeps subnormal numbers (Triton)",
    "numerics": "all of these, and reductions in eager's order",
    "deterministic": "no choice by timing that changes digits",
    "batch_invariant": "the same kernel for every batch size; implies deterministic",
}
ROUNDS = 30


def stepper(settings: dict[str, Any]) -> tuple[Callable[[], None], tuple[str, ...]]:
    """A compiled training step in bfloat16, and the sources of its kernels."""
    # Run anew each time: Dynamo keeps what it compiled by code object, and each setting needs its own.
    example = runpy.run_path(str(_report.ROOT / "examples" / "transformer.py"))
    torch.manual_seed(0)
    model = example["Transformer"](width=128).bfloat16()
    words = torch.randint(0, 50, (4, 64))
    with torch._inductor.config.patch(settings):
        compiled = torch.compile(copy.deepcopy(model))

        def step() -> None:
            compiled(words).float().square().mean().backward()

        with kernelscope.record(values="off") as run:
            step()
    return step, tuple(sorted({call.source or "" for call in run.calls}))


def compiled_graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def seconds(step: Callable[[], None]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def measure() -> dict[str, Any]:
    config = torch._inductor.config
    present = {name: {name: CAUTIOUS[PREFIX + name]} for name in SETTINGS if name in config._config}
    steps = {name: stepper(settings) for name, settings in {"": {}, **present}.items()}
    taken: dict[str, list[float]] = {name: [] for name in steps}
    compiled = compiled_graphs()
    for _ in range(ROUNDS):  # in turn, so that other work on the machine meets all of them
        for name, (step, _) in steps.items():
            taken[name].append(seconds(step))
    if compiled_graphs() != compiled:
        sys.exit("a step was compiled again while it was measured: the settings were not in force")
    bare = statistics.median(taken[""])
    return {
        "settings": {
            name: {
                "ratio": statistics.median(taken[name]) / bare,
                "changed": len({*steps[name][1]} - {*steps[""][1]}),
                "kernels": len(steps[name][1]),
            }
            for name in present
        },
        "missing": [name for name in SETTINGS if name not in present],
    }


def table(result: dict[str, Any]) -> str:
    rows = [["setting", "what it does", "kernels that it changes", "time, against the step without"]]
    for name, text in SETTINGS.items():
        found = result["settings"].get(name)
        value = repr(CAUTIOUS[PREFIX + name])
        last = ["-", f"not in torch {torch.__version__}"] if found is None else [
            f"{found['changed']} of {found['kernels']}", f"{found['ratio']:.2f}"]  # fmt: skip
        rows.append([f"`{name} = {value}`", text, *last])
    return "\n".join([
        *_report.aligned(rows), "",
        "- a training step in bfloat16 of the transformer in `examples/transformer.py`, width 128, compiled "
        f"with each; CPU time, median of {ROUNDS} steps in turn",
        f"- machine: {machine('cpu')}",
        f"- versions: {versions()}",
    ])  # fmt: skip


def main() -> None:
    options: argparse.Namespace = _report.parser(__doc__, PAGE).parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    result = measure()
    _report.report(options, result, table(result), (PAGE, "precision:strict"), lambda _: [])


if __name__ == "__main__":
    main()
