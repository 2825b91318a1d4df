"""How long it takes to find one divergence in two runs of a million calls, and in how much memory.

python benchmarks/diff.py [--calls N] [--write-docs] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "benchmarks")]

from _measure import machine, versions  # noqa: E402
from _report import write_table  # noqa: E402
from tests.support.long_runs import copy_with_a_fault, copy_without_a_call, write_long_run  # noqa: E402

PAGE = ROOT / "docs" / "diff.md"
MOST_SECONDS, MOST_BYTES = 5.0, 1e9

# In a process of its own, so that its peak memory is that of the comparison.
COMPARE = """
import json, resource, sys, time
from kernelscope.analysis.diff.search import diff
start, spent = time.perf_counter(), time.process_time()
found = diff(sys.argv[1], sys.argv[2])
print(json.dumps({
    "seconds": time.perf_counter() - start, "cpu": time.process_time() - spent,
    "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "verdict": found.verdict, "index": found.index,
}))
"""


def compare(a: Path, b: Path, times: int) -> dict[str, object]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    results = []
    for _ in range(times):
        words = [sys.executable, "-c", COMPARE, str(a), str(b)]
        results.append(json.loads(subprocess.check_output(words, env=environment)))
    middle = statistics.median(result["seconds"] for result in results)
    return next(result for result in results if result["seconds"] == middle)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/diff.md")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is not kept")
    options = parser.parse_args()
    calls = options.calls
    rows, broken = [], []
    with tempfile.TemporaryDirectory() as folder:
        good = write_long_run(Path(folder) / "a.kscope", calls)
        others = {
            "one kernel wrote different values": copy_with_a_fault(
                good, Path(folder) / "b.kscope", calls * 7 // 9
            ),
            "one call is missing": copy_without_a_call(good, Path(folder) / "c.kscope", calls // 2),
        }
        for what, other in others.items():
            found = compare(good, other, 3)
            seconds, cpu, used = (float(str(found[key])) for key in ("seconds", "cpu", "bytes"))
            told = f"{found['verdict']} at {found['index']:,}"
            rows.append(f"| {what} | {told} | {seconds:.1f} s | {cpu:.1f} s | {used / 1e6:.0f} MB |")
            if calls <= 1_000_000 and (seconds > MOST_SECONDS or used > MOST_BYTES):
                broken.append(f"{what}: {seconds:.1f} s and {used / 1e6:.0f} MB; promised are 5 s and 1 GB")
    table = "\n".join(
        [
            f"Two runs of {calls:,} calls on disk. {machine('cpu')}; {versions()}.",
            "",
            "| the second run | found | time | CPU time | peak memory |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )
    print(table)
    if options.write_docs:
        write_table(PAGE, "diff", table)
    if options.check and broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
