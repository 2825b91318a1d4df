"""How long the command takes to a cause: `kernelscope bisect` and torch's, on the same script.

    python benchmarks/bisect_commands.py                  all faults
    python benchmarks/bisect_commands.py relu training    some of them
    python benchmarks/bisect_commands.py --check          exit status 1 below the promised 5×

Both run `_faulty.py FAULT`, which plants the fault, and go by its exit status. Each starts with an empty
Inductor cache; precompiled headers are there for both. Time is from the start of the command to its end.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report
from _measure import machine, of_children, versions

PAGE = _report.ROOT / "docs" / "bisect.md"
SCRIPT = Path(__file__).parent / "_faulty.py"
LEAST = 5.0  # × faster, where both find the cause
STOCK = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", sys.executable]
OURS = [sys.executable, "-m", "kernelscope", "bisect", "--json", "--fails-on", "exception"]
PASS = "post_grad_custom_post_pass"


@dataclass(frozen=True)
class Fault:
    name: str  # for _faulty.py
    about: str
    ours: str  # what has to be in what ours names
    stock: str


FAULTS = [
    Fault("relu", "relu", "relu", "relu"),
    Fault("exp", "exp, of a softmax", "softmax", "exp"),
    Fault("erf", "erf, of a GELU", "gelu", "erf"),
    Fault("pass", "a pass that turns sums into differences", PASS, PASS),
    Fault("network", "relu, in a network of 7 kernels", "relu", "relu"),
    Fault("training", "erf, in a training step of two transformer layers", "gelu", "erf"),
]


def run(words: list[str], fault: Fault) -> tuple[dict[str, float], str]:
    """How long it took, and what it printed."""
    with tempfile.TemporaryDirectory() as name:
        variables = os.environ | {
            "PYTHONPATH": str(_report.ROOT / "src"),
            "TORCHINDUCTOR_CACHE_DIR": f"{name}/cache",
        }
        start, used = time.perf_counter(), of_children()
        done = subprocess.run(
            [*words, str(SCRIPT), fault.name],
            cwd=name,
            env=variables,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        taken = {"seconds": time.perf_counter() - start, "processor": of_children() - used}
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return taken, done.stdout


def stock(fault: Fault) -> dict[str, Any]:
    taken, said = run(STOCK, fault)
    runs = len(re.findall(r"^(?:right|wrong)$", said, re.MULTILINE))
    last = re.search(r"Bisection complete: .*?subsystem=(\S+), .*debug_info=(.*)\)", said)
    told = " ".join(part.strip("'\"") for part in last.groups()) if last else said.strip().splitlines()[-1]
    return {"said": told, "runs": runs, "found": fault.stock in told} | taken


def ours(fault: Fault, *options: str) -> dict[str, Any]:
    taken, said = run([*OURS, *options], fault)
    result = json.loads(said)
    cause = result["cause"]
    told = f"{cause['axis']} " + ", ".join(switch["name"] for switch in cause["switches"])
    return {
        "said": told,
        "runs": result["trials"],
        "found": fault.ours in told,
        "workaround": result["workaround"],
    } | taken


def measure(fault: Fault) -> dict[str, Any]:
    quick, whole, theirs = ours(fault, "--no-workaround"), ours(fault), stock(fault)
    return {
        "fault": fault.about,
        "ours": quick,
        "with_workaround": whole,
        "stock": theirs,
        "ratio": theirs["seconds"] / quick["seconds"],
        "ratio_with_workaround": theirs["seconds"] / whole["seconds"],
        "ratio_of_processor": theirs["processor"] / quick["processor"],
    }


def markdown(result: dict[str, Any]) -> str:
    lines = [
        "- both run the same script and use its exit status; empty caches, the same precompiled headers; "
        "time from the start of the command to its end",
        "- CPU time: of all processes; other work on the machine changes it less than elapsed time",
        f"- machine: {result['machine']}",
        f"- versions: {result['versions']}",
        "",
        "| fault | `compiler_bisector run` | processes | `kernelscope bisect --no-workaround` | runs "
        "| faster | CPU time | with a workaround |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        stock, ours, whole = row["stock"], row["ours"], row["with_workaround"]
        missed = "" if stock["found"] else " (not the cause)"
        lines.append(
            f"| {row['fault']} | {stock['said']}{missed}, {stock['seconds']:.0f} s | {stock['runs']} "
            f"| {ours['said']}, {ours['seconds']:.0f} s | {ours['runs']} | {row['ratio']:.1f}× "
            f"| {stock['processor']:.0f} s, {ours['processor']:.0f} s: {row['ratio_of_processor']:.1f}× "
            f"| {whole['seconds']:.0f} s, {row['ratio_with_workaround']:.1f}× |"
        )
    both = [row["ratio"] for row in result["rows"] if row["stock"]["found"] and row["ours"]["found"]]
    used = [row["ratio_of_processor"] for row in result["rows"] if row["stock"]["found"]]
    counts = [sum(row[who]["found"] for row in result["rows"]) for who in ("ours", "stock")]
    lines += ["", f"kernelscope named {counts[0]} of {len(result['rows'])}, CompilerBisector {counts[1]}."]
    if both:
        lines[-1] += (
            f" Where both did, it was {min(both):.1f}× to {max(both):.1f}× faster, in the median "
            f"{statistics.median(both):.1f}× (promised: {LEAST:.0f}×), and took {min(used):.1f} to "
            f"{max(used):.1f} times less CPU time."
        )
    return "\n".join(lines)


def broken(result: dict[str, Any]) -> list[str]:
    rows = result["rows"]
    missed = [
        f"{row['fault']}: not found ({row['ours']['said']})" for row in rows if not row["ours"]["found"]
    ]
    slow = [
        f"{row['fault']}: {row['ratio']:.1f}× faster than stock, promised {LEAST}×"
        for row in rows
        if row["stock"]["found"] and row["ours"]["found"] and row["ratio"] < LEAST
    ]
    return missed + slow


def main() -> None:
    options_parser = _report.parser(__doc__, PAGE)
    names = [fault.name for fault in FAULTS]
    options_parser.add_argument("faults", nargs="*", default=names, help=", ".join(names))
    options = options_parser.parse_args()
    subprocess.run([sys.executable, str(SCRIPT), "relu"], capture_output=True)  # makes the headers
    rows = []
    for fault in FAULTS:
        if fault.name in options.faults:
            rows.append(measure(fault))
            print(f"{fault.about}: {rows[-1]['ratio']:.1f}×", file=sys.stderr, flush=True)
    result = {"machine": machine("cpu"), "versions": versions(), "rows": rows}
    _report.report(options, result, markdown(result), (PAGE, "bisect:commands"), broken)


if __name__ == "__main__":
    main()
