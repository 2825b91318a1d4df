"""The precision map of a two-layer transformer, and what it costs.

python benchmarks/precision.py            print the tables
python benchmarks/precision.py --check    exit status 1 where a promise is not kept in one more run
"""

from __future__ import annotations

import argparse
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
from kernelscope.compiler_control.forced_settings import without_caches

PAGE = _report.ROOT / "docs" / "precision.md"
TOLERANCES = {"bfloat16": 2e-3, "float8_e4m3fn": 1e-2}
SHOWN = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "mxfp8", "mxfp4")


def seconds(run: Callable[[], Any], times: int = 1) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure() -> dict[str, Any]:
    torch.manual_seed(0)
    example = runpy.run_path(str(_report.ROOT / "examples" / "transformer.py"))
    model, words = torch.compile(example["Transformer"]()), torch.randint(0, 50, (2, 8))
    with torch.no_grad():
        model(words)
        torch.compiler.reset()
        with without_caches():
            compiling = seconds(lambda: model(words))
        bare = seconds(lambda: model(words), 50)
        forms = {
            name: kernelscope.precision_map(
                model, words, tolerance=tolerance, output="result 0", formats=[name]
            ).to_dict()
            for name, tolerance in TOLERANCES.items()
        }
        measuring = seconds(lambda: kernelscope.precision_map(model, words, output="result 0", formats=[]))
    what_ifs = [form["what_ifs"][0] for form in forms.values()]
    return {
        "kernels": forms["bfloat16"]["kernels"],
        "what_ifs": what_ifs,
        "run_ratio": sum(w["seconds"] for w in what_ifs) / sum(w["runs"] for w in what_ifs) / bare,
        "measuring_ratio": measuring / compiling,
    }


def table(result: dict[str, Any]) -> str:
    promises = {each["format"]: each for each in result["what_ifs"]}
    names = list(promises)
    rows = [["kernel", "ulp", "max ulp", "relative", "largest", "flushed or overflown", *names]]
    for kernel in result["kernels"]:
        label = f"#{kernel['index']} {kernel['kernel_name']}"
        error, held = kernel["error"], kernel["range"]
        lost = [
            f"{name} {100 * share:.1f} %"
            for name in SHOWN
            if (share := held["formats"][name]["overflow"] + held["formats"][name]["flushed"])
        ]
        rows.append([
            f"`{label}`", f"{error['median_ulp']:.2g}", f"{error['max_ulp']:.2g}", f"{error['relative']:.1e}",
            f"{held['largest']:.2g}", ", ".join(lost) or "none",
            *(effect_of(promises[name], label) for name in names),
        ])  # fmt: skip
    promise = [
        f"- **{name}**: {len(each['chosen'])} of {len(each['candidates'])} kernels; error of the verifying "
        f"run {each['error']:.2g} (tolerance {each['tolerance']:g}); with all kernels "
        f"{each['error_of_all']:.2g}; {each['runs']} runs"
        for name, each in promises.items()
    ]
    costs = [
        f"- measuring errors and ranges: {result['measuring_ratio']:.1f} times a call that compiles the "
        "function, in both cases without caches and with C++ that is built already",
        f"- each run of the search: {result['run_ratio']:.0f} times the bare program, whose tensors are "
        "tiny: the time goes into each launch, not into values",
        f"- machine: {machine('cpu')}",
        f"- versions: {versions()}",
    ]
    return "\n".join([*_report.aligned(rows), "", *promise, *costs])


def effect_of(promise: dict[str, Any], label: str) -> str:
    one = next(each for each in promise["candidates"] if each["label"] == label)
    effect = "not finite" if one["effect"] is None else f"{one['effect']:.1e}"
    return f"**can be** ({effect})" if one["is_chosen"] else f"no ({effect})"


def broken(result: dict[str, Any]) -> list[str]:
    return [f"{each['format']}: not verified" for each in result["what_ifs"] if not each["is_kept"]]


def main() -> None:
    options: argparse.Namespace = _report.parser(__doc__, PAGE).parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    result = measure()
    _report.report(options, result, table(result), (PAGE, "precision:transformer"), broken)


if __name__ == "__main__":
    main()
