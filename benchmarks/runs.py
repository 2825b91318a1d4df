"""What a run on disk costs: calls per second written, the program slowed, and how soon `show` answers.

python benchmarks/runs.py [--write-docs] [--check]
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]  # a machine that cannot install still measures

from _measure import Bench, Count, Variant  # noqa: E402
from _report import write_table  # noqa: E402

import kernelscope  # noqa: E402
from kernelscope.events import (  # noqa: E402
    COMPACT_CALL,
    Arg,
    Frame,
    Graph,
    GraphCall,
    Kernel,
    RunInfo,
    Site,
    SteadySite,
    TensorSpec,
)
from kernelscope.store.writer_thread import Writer  # noqa: E402

PAGE = ROOT / "docs" / "runs.md"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}
CALLS = 1_000_000
RATE = 10_000  # calls per second of the program that is slowed


def sustained(folder: Path, calls: int) -> float:
    """Calls per second from the first note to the closed run, as fast as one thread can note them."""
    spec = TensorSpec("float32", (64, 64), (64, 1), "cpu")
    args = (Arg("in_ptr0", "in", spec), Arg("out_ptr0", "out", spec))
    places = [
        SteadySite(
            Site(i, Kernel(i, f"cpp_fused_{i}", "cpp", "inductor"), args, origin=(Frame("model.py", i),)), ()
        )
        for i in range(50)
    ]
    info = RunInfo(
        "", "", 0, 0, 1, "", os.getpid(), 0, 0, time.time_ns(), (), {"torch": torch.__version__}, {}
    )
    writer, graph = Writer(folder, info), Graph(0, "forward", "0_forward")
    writer.flight.steady = dict(enumerate(places)).get
    note, now, pack = writer.note, time.monotonic_ns, COMPACT_CALL.pack
    start = time.perf_counter()
    for execution in range(calls // len(places)):
        writer.graph_call(GraphCall(execution, graph))
        for number in range(len(places)):
            note(pack(number, execution, now()))()
    writer.close()
    seconds = time.perf_counter() - start
    assert writer.calls == calls
    return calls / seconds


def slowed() -> tuple[Variant, Variant, float, float]:
    """A compiled program of about `RATE` calls per second: recorded to disk, recorded to memory, its rate.

    And the microseconds of CPU that a call recorded to disk costs the program's own thread, which a machine
    with other things to do changes least.
    """
    torch.set_num_threads(1)  # one core for the program, one for the writer
    low, high = 16, 512  # widths: of a faster program, and of a slower one
    while high - low > 4:
        width = (low + high) // 8 * 4
        step, calls = _program(width)
        rate = calls / min(_seconds(step) for _ in range(5))
        low, high = (width, high) if rate > RATE else (low, width)
    step, calls = _program(min(low, high))
    rate = calls / statistics.median(_seconds(step) for _ in range(15))
    numbers = itertools.count()

    with tempfile.TemporaryDirectory() as folder:

        @contextmanager
        def on_disk() -> Iterator[Count]:
            with kernelscope.record(path=f"{folder}/{next(numbers)}") as run:
                yield lambda: len(run)

        @contextmanager
        def in_memory() -> Iterator[Count]:
            with kernelscope.record() as run:
                yield lambda: len(run)

        disk, memory = Variant("on disk", "disk", on_disk), Variant("in memory", "memory", in_memory)
        bench = Bench(step, "cpu")
        bench.warm_up([disk, memory])
        bench.rounds([disk, memory], 15)
        calls = disk.calls
        own = statistics.median(_own_time(step, on_disk) for _ in range(15)) / calls * 1e6
    return disk, memory, rate, own


def _program(width: int) -> tuple[Callable[[], None], int]:
    """A step of small kernels, and how many calls it makes."""
    torch._dynamo.reset()
    x = torch.ones(width, width)

    @torch.compile(dynamic=False)
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = (x @ x).relu() / 64
        return x

    def step() -> None:
        for _ in range(25):
            program(x)

    step()
    with kernelscope.record() as run:
        step()
    return step, len(run)


def _seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _own_time(step: Callable[[], None], watch: Callable[[], AbstractContextManager[Count]]) -> float:
    """CPU seconds that one recorded step costs the program's thread more than a bare one."""

    def seconds() -> float:
        start = time.thread_time()
        step()
        return time.thread_time() - start

    before = seconds()
    with watch():
        step()
        recorded = seconds()
    return recorded - (before + seconds()) / 2


def answered(*words: str, times: int = 7) -> float:
    """Seconds until a command has answered; the median of some."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        command = [sys.executable, "-m", "kernelscope", *words]
        subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measured() -> tuple[str, list[str]]:
    """The table, and which promises are broken."""
    with tempfile.TemporaryDirectory() as folder:
        speeds = []
        for number in range(3):
            Path(folder, f"{number}.kscope").mkdir()
            speeds.append(sustained(Path(folder, f"{number}.kscope"), CALLS))
        run = Path(folder, "0.kscope")
        size = (run / "run.db").stat().st_size / CALLS
        show, chosen = answered("show", str(run)), answered("show", str(run), "--kernel", "*_7", "--json")
        help_ = answered("show", "--help")
    disk, memory, rate, own = slowed()
    speed = statistics.median(speeds)
    rows = [
        ("calls written per second, sustained", f"{speed:,.0f}", "≥ 100,000"),
        ("bytes per call in run.db", f"{size:.1f}", ""),
        (f"program of {rate:,.0f} calls/s, recorded to disk", f"{disk.ratio:.3f}×", "≤ 1.10×"),
        ("the same, recorded to memory", f"{memory.ratio:.3f}×", ""),
        ("CPU of the program's thread for a call recorded to disk", f"{own:.1f} µs", ""),
        (f"`show` on {CALLS:,} calls", f"{show:.2f} s", "< 1 s"),
        ("`show --kernel … --json` on them", f"{chosen:.2f} s", ""),
        ("`show --help`", f"{help_:.2f} s", "< 0.3 s"),
    ]
    lines = ["| | measured | promised |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    python, machine = platform.python_version(), platform.machine()
    where = f"{os.cpu_count()} cores of {machine}, Python {python}, torch {torch.__version__}"
    low, high = disk.quartiles
    spread = f"quartiles of the ratio {low:.3f} and {high:.3f}"
    lines += ["", f'Level "off", {where}, load {os.getloadavg()[0]:.1f}; {spread}.']
    kept = {
        "throughput": speed >= 100_000,
        "slowdown": disk.ratio <= 1.1,
        "show": show < 1,
        "show --help": help_ < 0.3,
    }
    return "\n".join(lines), [
        f"{name} is not what was promised" for name, is_kept in kept.items() if not is_kept
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/runs.md")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is not kept")
    options = parser.parse_args()
    table, broken = measured()
    print(table)
    if options.write_docs:
        write_table(PAGE, "runs", table)
    if options.check and broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
