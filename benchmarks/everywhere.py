"""What recording costs wherever people record: several programs, in memory and to disk, as one table.

    python benchmarks/everywhere.py                     # CUDA where there is one, otherwise CPU
    python benchmarks/everywhere.py --only dynamic,flex --rounds 8
    python benchmarks/everywhere.py --clock thread      # CPU time of the program's thread: on a busy machine

docs/overhead.md says how it measures.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]  # a machine that cannot install still measures

import _report  # noqa: E402
from _measure import Bench, Count, Variant, machine, say, versions  # noqa: E402
from _more_workloads import EVERYWHERE, ONLY_CUDA  # noqa: E402
from _workloads import Workload  # noqa: E402
from overhead import copy_bandwidth, floor_of, watched_for_nan  # noqa: E402

import kernelscope  # noqa: E402

PAGE = ROOT / "docs" / "overhead.md"
LEVELS = {"names": "off", "hash": "hash", "stats": "stats"}
COLUMNS = [f"{level}{sink}" for level in LEVELS for sink in ("", ", disk")] + ["watch"]


@contextmanager
def recorded(values: str, to_disk: bool, recapture: bool) -> Iterator[Count]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.kscope" if to_disk else None
        with kernelscope.record(path=path, values=values, recapture=recapture):
            yield lambda: 0


def variants(recapture: bool) -> list[Variant]:
    made = [
        Variant(f"{level}{sink}", f"{level}{sink}", partial(recorded, values, bool(sink), recapture))
        for level, values in LEVELS.items()
        for sink in ("", ", disk")
    ]
    return made if recapture else [*made, Variant("watch", "watch", watched_for_nan)]


def measure(key: str, device: str, rounds: int, clock: str) -> dict[str, Any]:
    say(f"compiling: {key}")
    start = time.perf_counter()
    workload = EVERYWHERE[key](device)
    for _ in range(6):
        workload.step()
    say(f"{key} compiled in {time.perf_counter() - start:.0f} s")
    watched = variants(recapture=key == "cuda-graphs")
    bench = Bench(workload.step, device, time.thread_time if clock == "thread" else time.perf_counter)
    bench.warm_up(watched)
    first = {v.key: v.warm_up_seconds for v in watched}
    bench.rounds(watched, rounds)
    bare = statistics.median(bench.bare_seconds)
    floor = floor_of(watched[2], workload)
    return {
        "workload": workload.description,
        "bare_ms": 1000 * bare,
        "calls": _calls(workload, recapture=key == "cuda-graphs"),
        "gb": floor["gb"],
        "ratios": {v.key: v.ratio for v in watched},
        "quartiles": {v.key: v.quartiles for v in watched},
        "first_s": first,
        "opening_ms": {
            v.key: (1000 * v.opening_seconds[0], 1000 * statistics.median(v.opening_seconds[1:]))
            for v in watched
        },
        "first_again_ms": {v.key: 1000 * statistics.median(v.first_seconds) for v in watched},
    }


def _calls(workload: Workload, *, recapture: bool) -> int:
    with kernelscope.record(recapture=recapture) as run:
        for _ in range(3):
            workload.step()
        before = len(run)
        workload.step()
    return len(run) - before


def table(result: dict[str, Any]) -> str:
    head = ["", "bare", "calls", "floor", *COLUMNS, "opening: hash", "stats", "first step: hash", "stats"]
    rows = []
    for one in result["workloads"]:
        floor = one["gb"] / result["copy_gb_s"] * 1000
        ratios = [f"{one['ratios'][c]:.2f}" if c in one["ratios"] else "–" for c in COLUMNS]
        again = one["first_again_ms"]
        rows.append(
            [
                one["workload"], f"{one['bare_ms']:.2f} ms", str(one["calls"]),
                f"{1 + floor / one['bare_ms']:.2f}", *ratios,
                *("{:.0f} ms, then {:.0f} ms".format(*one["opening_ms"][key]) for key in ("hash", "stats")),
                f"{one['first_s']['hash']:.1f} s, then {again['hash']:.0f} ms",
                f"{one['first_s']['stats']:.1f} s, then {again['stats']:.0f} ms",
            ]
        )  # fmt: skip
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        [
            f"- machine: {result['machine']}",
            f"- versions: {result['versions']}",
            f"- rounds: {result['rounds']}; clock: {result['clock']}; a copy moves "
            f"{result['copy_gb_s']:.0f} GB/s",
            "",
            *(
                "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
                for line in lines
            ),
        ]
    )


def main() -> None:
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("--rounds", type=int, default=5, help="how often each variant is measured")
    parser.add_argument("--only", metavar="KEYS", help="comma-separated: " + ", ".join(EVERYWHERE))
    parser.add_argument(
        "--clock",
        choices=["wall", "thread"],
        default="wall",
        help="wall time, or CPU time of the program's thread",
    )
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    keys = options.only.split(",") if options.only else list(EVERYWHERE)
    keys = [key for key in keys if options.device == "cuda" or key not in ONLY_CUDA]
    measured = []
    for key in keys:
        torch.compiler.reset()
        gc.collect()
        measured.append(measure(key, options.device, options.rounds, options.clock))
        say(str(measured[-1]["ratios"]))
    result = {
        "machine": machine(options.device),
        "versions": versions(),
        "rounds": options.rounds,
        "clock": options.clock,
        "copy_gb_s": copy_bandwidth(options.device),
        "workloads": measured,
    }
    _report.report(options, result, table(result), (PAGE, f"everywhere:{options.device}"), lambda found: [])


if __name__ == "__main__":
    main()
