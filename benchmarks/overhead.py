"""What recording costs: programs of several kinds, in memory and to disk, as multiples of a bare step.

    python benchmarks/overhead.py                       # CUDA where there is one, otherwise CPU
    python benchmarks/overhead.py --workloads dynamic,flex --only names,hash-disk --rounds 8
    python benchmarks/overhead.py --clock thread        # CPU time of the program's thread: on a busy machine
    python benchmarks/overhead.py --only all            # also stock DebugMode, ops="all", verify="reread"
    python benchmarks/overhead.py --check               # exit status 1 when a promise is not kept

With --json FILE, the file is rewritten after each workload. docs/overhead.md says how it measures.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]  # a machine that cannot install still measures

import _report  # noqa: E402
from _measure import Bench, Count, Variant, copy_bandwidth, machine, say, unwatched, versions  # noqa: E402
from _more_workloads import EVERYWHERE, ONLY_CUDA  # noqa: E402
from _workloads import Workload  # noqa: E402

import kernelscope  # noqa: E402

PAGE = ROOT / "docs" / "overhead.md"
STANDARD = ("names", "names-disk", "hash", "hash-disk", "stats", "stats-disk", "watch")
NAMES = {"names-disk": "names, disk", "hash-disk": "hash, disk", "stats-disk": "stats, disk"}
MOST_MEMORY = 64  # MB on the device, more than bare
CPU_LIMITS = [1.05, 1.15, 1.3, 1.4, 1.6, 1.7, 1.3]  # × bare, in the order of STANDARD
CUDA_LIMITS = {  # 0 is no promise
    "gpt2": [1.05, 0, 0, 0, 0, 0, 1.25],
    "training": [1.02, 1.05, 1.25, 1.30, 1.45, 1.5, 1.12],
    "dynamic": [1.05, 1.10, 1.4, 1.5, 0, 0, 1.25],
    "inference": [1.05, 1.15, 1.35, 1.5, 0, 0, 0],
    "cuda-graphs": [1.05, 0, 1.6, 1.8, 0, 0, 0],
    "flex": [1.05, 0, 1.3, 0, 0, 0, 0],
}


@contextmanager
def recorded(to_disk: bool = False, **how: Any) -> Iterator[Count]:
    with (
        tempfile.TemporaryDirectory() as folder,
        kernelscope.record(path=Path(folder) / "run.kscope" if to_disk else None, **how) as run,
    ):
        yield lambda: len(run)


@contextmanager
def watched_for_nan() -> Iterator[Count]:
    with kernelscope.values.watch("nan"):
        yield lambda: 0


@contextmanager
def stock(hashes: bool, inputs: bool) -> Iterator[Count]:
    hashing = DebugMode.log_tensor_hashes(hash_inputs=inputs) if hashes else nullcontext()
    with DebugMode() as mode, hashing:
        yield lambda: len(mode.operators)


def variants(wanted: list[str], *, recapture: bool = False) -> list[Variant]:
    ours = partial(partial, recorded, recapture=recapture)
    every = {
        "names": ours(values="off"),
        "names-disk": ours(to_disk=True, values="off"),
        "hash": ours(values="hash"),
        "hash-disk": ours(to_disk=True, values="hash"),
        "stats": ours(values="stats"),
        "stats-disk": ours(to_disk=True, values="stats"),
        "watch": watched_for_nan,
        "reread": ours(values="hash", verify="reread"),
        "names-all": ours(values="off", ops="all"),
        "hash-all": ours(values="hash", ops="all"),
        "stock": partial(stock, False, False),
        "stock-hash": partial(stock, True, False),
        "stock-hash-inputs": partial(stock, True, True),
    }
    if "all" in wanted:
        wanted = list(every)
    if recapture:  # neither a watch nor DebugMode sees into a CUDA graph
        wanted = [key for key in wanted if key != "watch" and not key.startswith("stock")]
    return [Variant(NAMES.get(key, key), key, every[key]) for key in wanted]


def made(key: str, device: str) -> Workload:
    torch.compiler.reset()
    gc.collect()
    say(f"compiling: {key}")
    workload = EVERYWHERE[key](device)
    for _ in range(6):
        workload.step()
    return workload


def measure(key: str, wanted: list[str], rounds: int, device: str, clock: str) -> dict[str, Any]:
    recapture = key == "cuda-graphs"
    workload, watched = made(key, device), variants(wanted, recapture=recapture)
    timer = time.thread_time if clock == "thread" else time.perf_counter
    bench = Bench(workload.step, device, timer, workload.kinds)
    say(f"{key}: warming up")
    bench.warm_up(watched)
    bench.rounds(watched, rounds)
    floor = hashed_by(workload, recapture)
    return {
        "key": key,
        "workload": workload.description,
        "bare_ms": 1000 * statistics.median(bench.bare_seconds),
        **floor,
        "variants": {v.key: result_of(v) for v in watched},
    }


def result_of(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "ratio": variant.ratio,
        "quartiles": variant.quartiles,
        "rounds": len(variant.ratios),
        "calls": variant.calls,
        "first_ms": [1000 * variant.warm_up_seconds, 1000 * statistics.median(variant.first_seconds)],
        "opening_ms": [
            1000 * variant.opening_seconds[0], 1000 * statistics.median(variant.opening_seconds[1:])
        ],
    }  # fmt: skip


def hashed_by(workload: Workload, recapture: bool) -> dict[str, float]:
    """What a step fingerprints: the bytes, and how many tensors they are; and how many calls it makes."""
    with kernelscope.record(values="hash", recapture=recapture) as run:
        for _ in range(3 * workload.kinds):
            workload.step()
        first = len(run)
        workload.step()
    sizes: dict[int, int] = {}  # by slot
    for call in run.records_of_calls[first:]:
        for slots in (call.pre, call.post):
            for i, slot in (slots or {}).items():
                tensor = call.site.args[i].tensor
                if tensor is not None:
                    sizes[slot] = math.prod(tensor.shape) * getattr(torch, tensor.dtype).itemsize
    return {"gb": sum(sizes.values()) / 1e9, "tensors": len(sizes), "calls": len(run) - first}


def look_at_device(one: dict[str, Any]) -> None:
    """Add each variant's peak memory and waits, on a GPU; traces slow down what is timed after them."""
    workload = made(one["key"], "cuda")
    bench = Bench(workload.step, "cuda", kinds=workload.kinds)
    bare = Variant("bare", "bare", unwatched)
    one["bare_mb"], one["bare_waits"] = bench.memory_and_waits(bare)
    one["bare_host_ms"], one["bare_kernels"], one["bare_busy_ms"] = bench.host_and_kernels(bare)
    for variant in variants(list(one["variants"]), recapture=one["key"] == "cuda-graphs"):
        if not variant.key.startswith("stock-hash"):  # it waits at every launch, and its trace takes minutes
            found = one["variants"][variant.key]
            found["mb"], found["waits"] = bench.memory_and_waits(variant)
            found["host_ms"], found["kernels"], found["busy_ms"] = bench.host_and_kernels(variant)


def table(result: dict[str, Any]) -> str:
    """The result as Markdown that also reads well in a terminal."""
    columns = {key: v["name"] for one in result["workloads"] for key, v in one["variants"].items()}
    first = [key for key in ("hash", "stats") if key in columns]
    traced = any("bare_mb" in one for one in result["workloads"])
    head = [
        "",
        "bare",
        "calls",
        "floor",
        *columns.values(),
        *(f"opening + first step: {key}" for key in first),
    ]
    head += ["memory", "waits"] if traced else []
    rows = []
    for one in result["workloads"]:
        found = one["variants"]
        row = [one["workload"], f"{one['bare_ms']:.2f} ms", str(one["calls"]), f"{_floor(one, result):.2f}"]
        row += [f"{found[key]['ratio']:.2f}" if key in found else "–" for key in columns]
        row += [_start(found[key]) if key in found else "–" for key in first]
        if traced:
            row += [f"{_most(one, 'mb'):+.0f} MB", f"{_most(one, 'waits'):+g}"]
        rows.append(row)
    where = _where_it_goes(result["workloads"]) if traced else []
    return "\n".join(
        [
            f"- machine: {result['machine']}",
            f"- versions: {result['versions']}",
            f"- rounds: {result['rounds']}; clock: {result['clock']}; "
            f"a copy moves {result['copy_gb_s']:.0f} GB/s",
            "",
            *_report.aligned([head, *rows]),
            *where,
        ]
    )


def _where_it_goes(workloads: list[dict[str, Any]]) -> list[str]:
    """Of each step: until the host has enqueued it, and what the GPU then does."""
    keys = ["names", "names-disk", "hash", "hash-disk", "stats", "watch"]
    head = ["", "", "bare", *(NAMES.get(key, key) for key in keys)]
    rows = [head]
    for one in workloads:
        for what, text in (("host_ms", "host, ms"), ("busy_ms", "GPU, ms"), ("kernels", "kernels")):
            found = [one["variants"].get(key, {}).get(what) for key in keys]
            cells = ["–" if value is None else f"{value:.3g}" for value in (one[f"bare_{what}"], *found)]
            rows.append([one["workload"] if what == "host_ms" else "", text, *cells])
    return ["", *_report.aligned(rows)]


def _start(variant: dict[str, Any]) -> str:
    """The first recording in the process, and the median of the others."""
    pairs = zip(variant["opening_ms"], variant["first_ms"], strict=True)
    return ", then ".join(f"{opening:.0f} + {first:.0f} ms" for opening, first in pairs)


def _floor(one: dict[str, Any], result: dict[str, Any]) -> float:
    """A bare step and a copy of the bytes that are hashed, × bare."""
    return 1 + 1000 * float(one["gb"]) / result["copy_gb_s"] / one["bare_ms"]


def _most(one: dict[str, Any], what: str) -> float:
    """The largest difference from bare among the variants."""
    return max(float(v[what]) - one[f"bare_{what}"] for v in one["variants"].values() if what in v)


def broken_promises(result: dict[str, Any]) -> list[str]:
    found = []
    for one in result["workloads"]:
        limits = CPU_LIMITS if result["device"] == "cpu" else CUDA_LIMITS.get(one["key"], [])
        for key, limit in zip(STANDARD, limits, strict=False):
            ratio = one["variants"].get(key, {}).get("ratio", 0.0)
            if limit and ratio > limit:
                found.append(f"{one['workload']}: {key} costs {ratio:.2f}× bare, and {limit}× was promised")
        if "bare_mb" in one:
            if (more := _most(one, "mb")) > MOST_MEMORY:
                found.append(f"{one['workload']}: {more:.0f} MB more than bare; promised: {MOST_MEMORY} MB")
            if _most(one, "waits") > 0:
                found.append(f"{one['workload']}: the host waits for the device more often than bare")
    return found


def main() -> None:
    known = [variant.key for variant in variants(["all"])]
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("--rounds", type=int, default=8, help="how often each variant is measured")
    parser.add_argument("--quick", action="store_true", help="2 rounds: does it work at all?")
    parser.add_argument("--workloads", metavar="KEYS", help="comma-separated: " + ", ".join(EVERYWHERE))
    parser.add_argument("--only", metavar="KEYS", help="comma-separated, or all: " + ", ".join(known))
    parser.add_argument("--traces", action="store_true", help="on a GPU, also peak memory and waits")
    parser.add_argument(
        "--clock",
        choices=["wall", "thread"],
        default="wall",
        help="wall time, or CPU time of the program's thread",
    )
    options = parser.parse_args()
    keys = options.workloads.split(",") if options.workloads else list(EVERYWHERE)
    wanted = options.only.split(",") if options.only else list(STANDARD)
    if unknown := {*keys} - {*EVERYWHERE} | {*wanted} - {*known, "all"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if options.threads:
        torch.set_num_threads(options.threads)
    measured: list[dict[str, Any]] = []
    result = {
        "machine": machine(options.device),
        "versions": versions(),
        "device": options.device,
        "rounds": 2 if options.quick else options.rounds,
        "clock": options.clock,
        "copy_gb_s": copy_bandwidth(options.device),
        "workloads": measured,
    }
    for key in keys:
        if options.device == "cuda" or key not in ONLY_CUDA:
            measured.append(measure(key, wanted, result["rounds"], options.device, options.clock))
            say(str({name: round(v["ratio"], 2) for name, v in measured[-1]["variants"].items()}))
            _report.keep(options, result)
    for one in measured if options.traces and options.device == "cuda" else []:
        look_at_device(one)
        say(f"{one['key']}: {_most(one, 'mb'):+.0f} MB, {_most(one, 'waits'):+g} waits")
        _report.keep(options, result)
    _report.report(options, result, table(result), (PAGE, f"overhead:{options.device}"), broken_promises)


if __name__ == "__main__":
    main()
