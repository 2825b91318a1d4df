"""`kernelscope reduce` beside torch's own minifier: the same fault, the same machine, one run.

    python benchmarks/reduce.py                  both, on graphs of several sizes
    python benchmarks/reduce.py --sizes 22       one size
    python benchmarks/reduce.py --write-docs     rewrite the table in docs/repro.md

The fault is torch's own for tests: a relu that is off by one. Each starts with an empty compile cache; the
precompiled headers are shared. Time is that of all processes from the failing script to the reduced one. Ours
is then run in a fresh process, and has to fail.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _measure import of_children
from _report import ROOT, parser, report

PAGE = ROOT / "docs" / "repro.md"
SIZES = (11, 22)
PROMISED = 10.0  # times as fast

SCRIPT = """
import torch
import torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"

@torch.compile
def f(x, y):
    for i in range({rounds}):
        x = (x.sin() + y) * 1.5
    x = torch.relu(x)
    for i in range({rounds}):
        x = (x.cos() - y) * 0.5
    return x

torch.manual_seed(0)
f(torch.randn(8, 16), torch.randn(8, 16))
"""


@dataclass
class Row:
    nodes: int
    ours_nodes: int
    ours_trials: int
    ours_seconds: float
    ours_processor: float  # CPU time of all processes
    stock_nodes: int  # -1: it lost the failure
    stock_seconds: float
    stock_processor: float

    @property
    def ratio(self) -> float:
        return self.stock_seconds / self.ours_seconds

    @property
    def ratio_of_processor(self) -> float:
        return self.stock_processor / self.ours_processor


def script_of(nodes: int) -> str:
    """About so many nodes: three in each round, and the relu."""
    return SCRIPT.format(rounds=max(1, round((nodes - 1) / 6)))


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }


def ours(nodes: int) -> tuple[int, int, float, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.py").write_text(script_of(nodes), encoding="utf-8")
        words = [sys.executable, "-m", "kernelscope", "reduce", "--json", "script.py"]
        start, used = time.perf_counter(), of_children()
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        taken = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(done.stderr)
        import json

        told, used = json.loads(done.stdout), of_children() - used
        _confirm(folder)
        return told["nodes"], told["trials"], taken, used


def _confirm(folder: Path) -> None:
    """In a fresh process, with a cache that nothing was compiled to: what was written shows the failure."""
    (folder / "other").mkdir()
    words = [sys.executable, str(folder / "script-reduced" / "reduced.py")]
    done = subprocess.run(
        words, env=environment(folder / "other"), capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode != 1:
        raise SystemExit(f"the reduced script does not fail:\n{done.stdout}{done.stderr}")


def stock(nodes: int) -> tuple[int, float, float]:
    """The script with its variables, and then the launcher that it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.py").write_text(script_of(nodes), encoding="utf-8")
        variables = environment(folder) | {
            "TORCHDYNAMO_REPRO_AFTER": "aot",
            "TORCHDYNAMO_REPRO_LEVEL": "4",
            "TORCHDYNAMO_DEBUG_DIR": str(folder),
            "TORCH_COMPILE_DEBUG_DIR": str(folder),
        }
        start, used = time.perf_counter(), of_children()
        subprocess.run([sys.executable, "script.py"], cwd=folder, env=variables, capture_output=True)
        launchers = sorted(folder.rglob("minifier_launcher.py"))
        if not launchers:
            return -1, time.perf_counter() - start, of_children() - used
        words = [sys.executable, str(launchers[0]), "minify"]
        subprocess.run(words, cwd=folder, env=variables, capture_output=True)
        taken = time.perf_counter() - start
        found = sorted(folder.rglob("repro.py"))
        left = _nodes_in(found[-1].read_text(encoding="utf-8")) if found else -1
        return left, taken, of_children() - used


def _nodes_in(text: str) -> int:
    body = re.search(r"def forward\(self.*?return ", text, re.DOTALL)
    return len(re.findall(r"= torch\.ops\.", body[0])) if body else -1


def measure(nodes: int) -> Row:
    made = ours(nodes)
    print(f"{nodes} nodes: ours {made[2]:.0f} s", file=sys.stderr)
    theirs = stock(nodes)
    print(f"{nodes} nodes: stock {theirs[1]:.0f} s", file=sys.stderr)
    return Row(6 * max(1, round((nodes - 1) / 6)) + 1, *made, *theirs)


def counted(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def table(rows: list[Row]) -> str:
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}:",
        "",
        "| nodes | `kernelscope reduce` | trials | stock minifier | faster | CPU time |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours = counted(row.ours_nodes)
        left = counted(row.stock_nodes) if row.stock_nodes >= 0 else "lost the failure"
        lines.append(
            f"| {row.nodes} | {ours}, {row.ours_seconds:.1f} s | {row.ours_trials} "
            f"| {left}, {row.stock_seconds:.1f} s | {row.ratio:.1f}× "
            f"| {row.ours_processor:.1f} s, {row.stock_processor:.1f} s: {row.ratio_of_processor:.1f}× |"
        )
    return "\n".join(lines)


def broken(result: dict[str, Any]) -> list[str]:
    return [
        f"{row['nodes']} nodes: only {row['stock_seconds'] / row['ours_seconds']:.1f} times as fast"
        for row in result["rows"]
        if row["stock_seconds"] < PROMISED * row["ours_seconds"]
    ]


def main() -> None:
    options_parser = parser(__doc__, PAGE)
    options_parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="about how many nodes")
    options = options_parser.parse_args()
    rows = [measure(nodes) for nodes in options.sizes]
    report(options, {"rows": [asdict(row) for row in rows]}, table(rows), (PAGE, "reduce"), broken)


if __name__ == "__main__":
    main()
