"""How fast fingerprints are: GB/s at "hash" and "stats", beside a copy, torch.hash_tensor, a norm, a sum.

    python benchmarks/fingerprint.py                 # CUDA where there is one, otherwise CPU
    python benchmarks/fingerprint.py --quick         # few sizes and rounds: does it work at all?
    python benchmarks/fingerprint.py --check         # exit status 1 when a promise is not kept

docs/fingerprint.md says how it measures.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]  # a machine that cannot install still measures

import _report  # noqa: E402
from _measure import machine, say, versions  # noqa: E402

from kernelscope.fingerprint import Fingerprinter  # noqa: E402

PAGE = ROOT / "docs" / "fingerprint.md"
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
SIZES = {
    "cuda": (4 * KB, 64 * KB, MB, 16 * MB, 64 * MB, 256 * MB, GB, 4 * GB),
    "cpu": (4 * KB, 64 * KB, MB, 16 * MB, 64 * MB, 256 * MB),
}
LAYOUT_SIZE = {"cuda": 256 * MB, "cpu": 16 * MB}
DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool)
COLD = {"cuda": 512 * MB, "cpu": 128 * MB}  # tensors of so many bytes take turns, more than a cache holds
MOST_TENSORS = 64
BATCH_SECONDS = 0.02  # of calls that are timed together
SLEEP_CYCLES = 30_000_000  # of the GPU, while the host enqueues a batch

LARGE = 64 * MB  # from here on promises hold on a GPU …
LARGE_CPU = MB  # … and on a CPU
HASH, STATS, STATS_OF_BYTES, OF_SUM = 0.85, 0.60, 0.35, 0.5

Work = Callable[[torch.Tensor], object]


@dataclass
class Method:
    """One way to go over a tensor, and the bytes that it moves for each byte of the tensor."""

    name: str
    work: Work
    moves: int = 1
    speeds: list[float] = field(default_factory=list)  # bytes a second, one a round
    ratios: list[float] = field(default_factory=list)  # to the copy of the same round
    refused: str = ""


class Clock:
    """Seconds a call, over tensors that take turns so that none is in a cache."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"

    def seconds(self, work: Work, tensors: Sequence[torch.Tensor], calls: int) -> float:
        if not self._cuda:
            start = time.perf_counter()
            for i in range(calls):
                work(tensors[i % len(tensors)])
            return (time.perf_counter() - start) / calls
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(SLEEP_CYCLES)  # so that the device never waits for the host
        begin.record()
        for i in range(calls):
            work(tensors[i % len(tensors)])
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000 / calls

    def calls(self, work: Work, tensors: Sequence[torch.Tensor]) -> int:
        """As many as make a batch; on a GPU few enough to be enqueued while it sleeps."""
        work(tensors[0])
        once = self.seconds(work, tensors, 2)
        most = 100 if self._cuda else 10_000
        return max(2, min(most, int(BATCH_SECONDS / max(once, 1e-7))))


def methods(target: torch.Tensor) -> list[Method]:
    from torch.utils._debug_mode import norm_hash_fn

    hashed, measured = Fingerprinter(), Fingerprinter(level="stats")
    return [
        Method("copy_", target.copy_, moves=2),
        Method("hash", lambda x: hashed.take([x])),
        Method("stats", lambda x: measured.take([x])),
        Method("torch.hash_tensor", torch.hash_tensor),
        Method("stock norm", norm_hash_fn),
        Method("sum", torch.sum),
    ]


def measure(name: str, tensors: Sequence[torch.Tensor], rounds: int, device: str) -> dict[str, Any]:
    """Every method on these tensors, in turns, with ratios within each round."""
    nbytes = tensors[0].numel() * tensors[0].itemsize
    clock, ways = Clock(device), methods(torch.empty_like(tensors[0], memory_format=torch.contiguous_format))
    calls = {}
    for way in ways:
        try:
            calls[way.name] = clock.calls(way.work, tensors)
        except (
            RuntimeError,
            NotImplementedError,
            TypeError,
        ) as error:  # a dtype that it does not take, or memory
            way.refused = str(error).partition("\n")[0]
    for _ in range(rounds):
        copied = 0.0
        for way in ways:
            if not way.refused:
                speed = way.moves * nbytes / clock.seconds(way.work, tensors, calls[way.name])
                copied = copied or speed
                way.speeds.append(speed)
                way.ratios.append(speed / copied)
    return {
        "name": name,
        "dtype": str(tensors[0].dtype).removeprefix("torch."),
        "bytes": nbytes,
        "methods": {way.name: result_of(way) for way in ways},
    }


def result_of(way: Method) -> dict[str, Any]:
    if way.refused:
        return {"refused": way.refused}
    return {"gb_s": statistics.median(way.speeds) / 1e9, "ratio": statistics.median(way.ratios)}


def tensors_of(dtype: torch.dtype, nbytes: int, device: str) -> list[torch.Tensor]:
    """Ordinary numbers; enough tensors that a call finds none of its bytes in a cache."""
    count = max(1, min(MOST_TENSORS, COLD[device] // nbytes))
    return [random_tensor(dtype, nbytes // dtype.itemsize, device) for _ in range(count)]


def random_tensor(dtype: torch.dtype, numel: int, device: str) -> torch.Tensor:
    out = torch.empty(numel, dtype=dtype, device=device)
    step = 16 * MB  # elements: the way through float32 must not need four times the memory
    for start in range(0, numel, step):
        part = out[start : start + step]
        part.copy_(torch.randn(part.numel(), device=device).mul_(100 if dtype == torch.int64 else 1))
    return out


def layouts(device: str) -> dict[str, Callable[[torch.dtype, int], torch.Tensor]]:
    """Tensors of so many elements that are not one aligned run of memory."""
    width = 4096

    def matrix(dtype: torch.dtype, numel: int) -> torch.Tensor:
        return random_tensor(dtype, numel, device).view(-1, width)

    return {
        "every second": lambda dtype, n: random_tensor(dtype, 2 * n, device)[::2],
        "columns": lambda dtype, n: matrix(dtype, 2 * n)[:, : width // 2],
        "transposed": lambda dtype, n: matrix(dtype, n).t(),
        "misaligned": lambda dtype, n: random_tensor(dtype, n + 8, device)[1 : n + 1],
    }


def measure_all(device: str, rounds: int, sizes: Sequence[int]) -> dict[str, Any]:
    results = []
    for dtype in DTYPES:
        for nbytes in sizes:
            say(f"{dtype}, {shown_size(nbytes)}")
            results.append(measure("", tensors_of(dtype, nbytes, device), rounds, device))
            if device == "cuda":
                torch.cuda.empty_cache()
    nbytes = min(LAYOUT_SIZE[device], max(sizes))
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
        for name, make in layouts(device).items():
            say(f"{dtype}, {name}")
            count = max(1, min(MOST_TENSORS, COLD[device] // nbytes))
            made = [make(dtype, nbytes // dtype.itemsize) for _ in range(count)]
            results.append(measure(name, made, rounds, device))
    return {
        "device": device,
        "machine": machine(device),
        "versions": versions(),
        "rounds": rounds,
        "results": results,
    }


def table(result: dict[str, Any]) -> str:
    """The result as Markdown that also reads well in a terminal."""
    names = list(result["results"][0]["methods"])
    head = ["dtype", "size", "layout"]
    for name in names:
        head += [f"`{name}`" if name in ("copy_", "torch.hash_tensor") else name]
        head += ["× copy"] if name in ("hash", "stats") else []
    rows = []
    for one in result["results"]:
        row = [one["dtype"], shown_size(one["bytes"]), one["name"] or "contiguous"]
        for name in names:
            found = one["methods"][name]
            row.append("—" if "refused" in found else shown_speed(found["gb_s"]))
            if name in ("hash", "stats"):
                row.append("—" if "refused" in found else f"{found['ratio']:.2f}")
        rows.append(row)
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        [
            f"- machine: {result['machine']}",
            f"- versions: {result['versions']}",
            f"- GB/s, the median of {result['rounds']} rounds; of a copy, bytes read and written",
            "",
            *(
                "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
                for line in lines
            ),
        ]
    )


def shown_size(nbytes: int) -> str:
    for unit, name in ((GB, "GB"), (MB, "MB"), (KB, "KB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.0f} {name}"
    return f"{nbytes} B"


def shown_speed(gb_s: float) -> str:
    return f"{gb_s:.0f}" if gb_s >= 100 else f"{gb_s:.3g}"


def broken_promises(result: dict[str, Any]) -> list[str]:
    """Contiguous tensors only: for others the layout decides."""
    found = []
    for one in result["results"]:
        if one["name"]:
            continue
        ways = one["methods"]
        about = f"{one['dtype']}, {shown_size(one['bytes'])}"
        if result["device"] == "cuda" and one["bytes"] >= LARGE:
            single = getattr(torch, one["dtype"]).itemsize == 1
            for way, least in (("hash", HASH), ("stats", STATS_OF_BYTES if single else STATS)):
                if (ratio := ways[way]["ratio"]) < least:
                    found.append(f"{about}: {way} has {ratio:.2f} of a copy's speed, {least} was promised")
        if result["device"] == "cpu" and one["bytes"] >= LARGE_CPU and "refused" not in ways["sum"]:
            ratio = ways["hash"]["gb_s"] / ways["sum"]["gb_s"]
            if ratio < OF_SUM:
                found.append(f"{about}: hash has {ratio:.2f} of a sum's speed, {OF_SUM} was promised")
    return found


def main() -> None:
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("--rounds", type=int, default=9, help="how often each method is measured")
    parser.add_argument("--quick", action="store_true", help="two sizes, 2 rounds: does it work at all?")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    sizes = (64 * KB, 4 * MB) if options.quick else SIZES[options.device]
    result = measure_all(options.device, 2 if options.quick else options.rounds, sizes)
    page = PAGE, f"fingerprint:{options.device}"
    _report.report(options, result, table(result), page, broken_promises)


if __name__ == "__main__":
    main()
