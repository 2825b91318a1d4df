"""What recording costs: a bare training step, kernelscope at each level, stock DebugMode; one run, as ratios.

    python benchmarks/overhead.py                 # CUDA where there is one, otherwise CPU
    python benchmarks/overhead.py --device cpu --rounds 40
    python benchmarks/overhead.py --check         # exit status 1 when a promise is not kept

docs/overhead.md says how it measures.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import Counter
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
from _measure import Bench, Count, Variant, machine, say, unwatched, versions  # noqa: E402
from _workloads import Workload, gpt2, transformer_blocks  # noqa: E402

import kernelscope  # noqa: E402

PAGE = ROOT / "docs" / "overhead.md"
HASHING = ("hash-graph", "reread", "stats-graph")  # variants that have a floor
MOST_TIME = 1.05  # metadata of compiled code, × bare
MOST_FOR_NAN = 1.25  # a watch for NaN in every output, on a GPU
MOST_MEMORY = 64 << 20  # hashes, more than bare


@contextmanager
def ours(values: str, ops: str, verify: str = "") -> Iterator[Count]:
    with kernelscope.record(values=values, ops=ops, verify=verify) as run:
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


def variants() -> list[Variant]:
    return [
        Variant("kernelscope, metadata", "off-graph", partial(ours, "off", "graph")),
        Variant("kernelscope, hashes, each version once", "hash-graph", partial(ours, "hash", "graph")),
        Variant(
            "kernelscope, hashes, all before and after", "reread", partial(ours, "hash", "graph", "reread")
        ),
        Variant("kernelscope, statistics, each version once", "stats-graph", partial(ours, "stats", "graph")),
        Variant("watch for NaN in every output", "watch", watched_for_nan),
        Variant('kernelscope, metadata, ops="all"', "off-all", partial(ours, "off", "all")),
        Variant('kernelscope, hashes, ops="all"', "hash-all", partial(ours, "hash", "all")),
        Variant("stock DebugMode, metadata", "stock", partial(stock, False, False)),
        Variant("stock DebugMode, output hashes", "stock-hash", partial(stock, True, False)),
        Variant("stock DebugMode, input and output hashes", "stock-hash-inputs", partial(stock, True, True)),
    ]


def measure(workload: Workload, rounds: int, watched: list[Variant]) -> dict[str, Any]:
    bench = Bench(workload.step, workload.device)
    say("warming up every variant")
    bench.warm_up(watched)
    say(f"{rounds} rounds")
    bench.rounds(watched, rounds)
    bare = Variant(
        "bare", "bare", unwatched, bench.bare_seconds, [1.0], kernels := sum(counts(workload).values())
    )
    every = [bare, *watched]
    if workload.device == "cuda":
        say("peak memory, and waits in a CUPTI trace")
        for variant in every:
            bench.peak_memory(variant)
            if not variant.key.startswith(
                "stock-hash"
            ):  # it waits at every launch, and its trace takes minutes
                bench.waits(variant)
    say("bytes fingerprinted")
    return {
        "floors": {v.key: floor_of(v, workload) for v in watched if v.key in HASHING},
        "copy_gb_s": copy_bandwidth(workload.device),
        "workload": workload.description,
        "device": workload.device,
        "kernels": kernels,
        "kinds": counts(workload),
        "machine": machine(workload.device),
        "versions": versions(),
        "variants": {variant.key: result_of(variant) for variant in every},
    }


def floor_of(variant: Variant, workload: Workload) -> dict[str, float]:
    """What a step fingerprints: the bytes, and how many tensors they are."""
    with kernelscope.record(values="hash", verify="reread" if variant.key == "reread" else "") as run:
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
    return {"gb": sum(sizes.values()) / 1e9, "tensors": len(sizes)}


def copy_bandwidth(device: str) -> float:
    """GB/s that a large copy moves, what it reads and what it writes."""
    source = torch.ones((1 << 30 if device == "cuda" else 1 << 26) // 4, device=device)
    target, wait = torch.empty_like(source), torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(12):
        wait()
        start = time.perf_counter()
        target.copy_(source)
        wait()
        times.append(time.perf_counter() - start)
    return 2 * source.nbytes / statistics.median(times[2:]) / 1e9


def floors(result: dict[str, Any]) -> list[str]:
    """For each way to hash: what it reads, how long a copy of as much takes, and what it added."""
    lines = []
    for key, floor in result["floors"].items():
        variant, speed = result["variants"][key], result["copy_gb_s"]
        least = floor["gb"] / speed * 1000
        added = (variant["ratio"] - 1) * result["variants"]["bare"]["ms"]
        lines.append(
            f"- {variant['name'].removeprefix('kernelscope, ')}: {floor['tensors']} tensors, "
            f"{floor['gb']:.2f} GB per step; at the {speed:.0f} GB/s of a copy {least:.1f} ms, "
            f"and {added:.1f} ms were added: {added / least:.1f}×"
        )
    return lines


def counts(workload: Workload) -> dict[str, int]:
    """The kernels of one step, by kind."""
    with kernelscope.record() as run:
        workload.step()
    return dict(Counter(call.kind for call in run.calls))


def result_of(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "ms": 1000 * statistics.median(variant.seconds),
        "ratio": variant.ratio,
        "quartiles": variant.quartiles,
        "first_ms": 1000 * statistics.median(variant.first_seconds or variant.seconds),
        "rounds": len(variant.seconds),
        "calls": variant.calls,
        "waits": variant.waits,
        "peak": variant.peak,
    }


def table(result: dict[str, Any]) -> str:
    """The result as Markdown that also reads well in a terminal."""
    bare = result["variants"]["bare"]
    head = ["", "step", "× bare", "quartiles", "first step", "calls per step"]
    cuda = result["device"] == "cuda"
    rows = []
    for variant in result["variants"].values():
        low, high = variant["quartiles"]
        is_bare = variant is bare
        row = [variant["name"], f"{variant['ms']:.1f} ms", "1" if is_bare else f"{variant['ratio']:.2f}"]
        row += (
            ["", "", ""]
            if is_bare
            else [f"{low:.2f} – {high:.2f}", f"{variant['first_ms']:.0f} ms", str(variant["calls"])]
        )
        if cuda:
            more = (variant["peak"] - bare["peak"]) / 2**20
            row += [
                f"{bare['peak'] / 2**20:.0f} MB" if is_bare else f"{more:+.0f} MB",
                "not traced" if variant["waits"] is None else f"{variant['waits']:g}",
            ]
        rows.append(row)
    head += ["peak memory", "host waits per step"] if cuda else []
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    kinds = ", ".join(f"{count} {kind}" for kind, count in result["kinds"].items())
    return "\n".join(
        [
            f"- workload: {result['workload']}; {result['kernels']} kernels per step ({kinds})",
            f"- machine: {result['machine']}",
            f"- versions: {result['versions']}",
            f"- rounds: {max(v['rounds'] for k, v in result['variants'].items() if k != 'bare')}"
            f" (slow variants: {min(v['rounds'] for v in result['variants'].values())})",
            *floors(result),
            "",
            *(
                "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
                for line in lines
            ),
        ]
    )


def broken_promises(result: dict[str, Any]) -> list[str]:
    found = []
    results = result["variants"]
    ratio = results["off-graph"]["ratio"]
    if ratio > MOST_TIME:
        found.append(f"metadata of compiled code costs {ratio:.3f}× bare, and {MOST_TIME}× was promised")
    if result["device"] != "cuda":
        return found
    if "watch" in results and results["watch"]["ratio"] > MOST_FOR_NAN:
        ratio = results["watch"]["ratio"]
        found.append(f"a watch for NaN costs {ratio:.3f}× bare, and {MOST_FOR_NAN}× was promised")
    if "hash-graph" in results:
        more = results["hash-graph"]["peak"] - results["bare"]["peak"]
        if more > MOST_MEMORY:
            found.append(f"hashes need {more / 2**20:.0f} MB more than bare, and 64 MB were promised")
    for key in results.keys() & {"off-graph", "hash-graph", "reread", "watch", "off-all", "hash-all"}:
        if results[key]["waits"] > results["bare"]["waits"]:
            found.append(f"{results[key]['name']}: the host waits for the device more often than bare")
    return found


def main() -> None:
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("--rounds", type=int, default=24, help="how often each variant is measured")
    parser.add_argument("--quick", action="store_true", help="4 rounds: does it work at all?")
    parser.add_argument(
        "--only", metavar="KEYS", help="comma-separated: " + ", ".join(v.key for v in variants())
    )
    options = parser.parse_args()
    if options.check and options.only and "off-graph" not in options.only.split(","):
        parser.error("--check needs off-graph among the --only")
    if options.threads:
        torch.set_num_threads(options.threads)
    say("compiling the workload")
    workload = gpt2() if options.device == "cuda" else transformer_blocks()
    chosen = [v for v in variants() if not options.only or v.key in options.only.split(",")]
    result = measure(workload, 4 if options.quick else options.rounds, chosen)
    page = PAGE, f"overhead:{options.device}"
    _report.report(options, result, table(result), page, broken_promises)


if __name__ == "__main__":
    main()
