"""Runs torch's own operator and module databases under `shadow`, each sample compiled, forward and backward.

    make sweep
    python -m tests.sweep --device cuda --dtypes float32,bfloat16 --jobs 8 --minutes 9
    python -m tests.sweep --ray 10.0.0.7:6379
    python -m tests.sweep --only 'op:fft_*' --samples 1

Every program of the databases is right, so what shadow reports is a false alarm, unless the list of known
bugs of torch (known_bugs.json) names it. Results go to a journal; the same command with the same journal
continues where it stopped.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kernelscope.processes.cluster.machines import workers_of
from kernelscope.processes.cluster.ray_cluster import connected

from .databases import DTYPES, Job, jobs
from .journal import Journal, together
from .pool import ROOT, Pool, Settings
from .table import PAGE, broken, details, table, write_docs

# What once went wrong: no elements, uninitialised memory, complex numbers, views, memory that is used again.
_SHORT = (
    "op:matmul:float32", "op:linalg.slogdet:float32", "op:nn.functional.pad.circular:float32",
    "op:nn.functional.adaptive_avg_pool1d:float32", "op:empty_like:float32", "op:index_select:float32",
    "op:linalg.eig:float32", "op:fft.hfft:float32", "op:sgn:float32", "op:to_sparse:float32",
    "op:index_fill:float32", "op:nn.functional.conv2d:float32", "module:nn.MultiheadAttention:float32",
    "op:cumsum:bfloat16", "op:div.floor_rounding:int64", "op:bernoulli:float32", "op:mul:complex64",
    "op:logical_xor:bool",
)  # fmt: skip
_EVERY = 400  # of all jobs, for the short choice


def chosen(options: argparse.Namespace) -> list[Job]:
    found = list(jobs(options.device, tuple(options.dtypes.split(","))))
    if options.short:
        return [job for i, job in enumerate(found) if str(job) in _SHORT or i % _EVERY == 7]
    if options.only:
        found = [job for job in found if any(fnmatch.fnmatch(str(job), f"{o}*") for o in options.only)]
    index, count = (int(part) for part in options.shard.split("/"))
    return found[index::count]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="separated by commas")
    parser.add_argument("--samples", type=int, default=3, help="of each operator and dtype")
    parser.add_argument("--first", action="store_true", help="the first samples, not samples spread over all")
    parser.add_argument(
        "--only", action="append", metavar="GLOB", help="jobs such as op:fft_*:float32 or module:*"
    )
    parser.add_argument("--short", action="store_true", help="the choice of `make test`: about two minutes")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="only every N-th job, from the I-th on")
    parser.add_argument(
        "--jobs",
        type=int,
        help="worker processes; default: half of the CPUs; with --ray all",
    )
    parser.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS",
        help="workers on a Ray cluster that sees this folder; default: RAY_ADDRESS, or this machine",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--timeout", type=float, default=120, help="seconds per sample")
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time; 0: run to the end")
    parser.add_argument("--cache", type=Path, help="keep compiled kernels here; default: a temporary folder")
    parser.add_argument("--journal", type=Path, help="default: build/sweep-DEVICE.jsonl")
    parser.add_argument("--again", metavar="STATUS", action="append", help="try samples of this status again")
    parser.add_argument(
        "--table", action="store_true", help="run nothing: only show the table of the journal"
    )
    parser.add_argument(
        "--earlier", type=Path, action="append", default=[], metavar="JOURNAL",
        help="show this journal's samples too, where the journal does not have them",
    )  # fmt: skip
    parser.add_argument(
        "--write-docs", nargs="?", const="", metavar="PLACE",
        help=f"put the table into {PAGE.relative_to(ROOT)}, at the place of that name; default: the device",
    )  # fmt: skip
    options = parser.parse_args()
    path = options.journal or ROOT / f"build/sweep-{options.device}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(path, options.again or ())
    if not options.table:
        run(options, journal)
    rows, about = together([*(Journal(each) for each in options.earlier), journal])
    print(details(rows))
    shown = table(rows, about)
    print(shown)
    if options.write_docs is not None:
        write_docs(options.write_docs or options.device, shown)
    return int(broken(rows))


def run(options: argparse.Namespace, journal: Journal) -> None:
    ends = time.monotonic() + (60 * options.minutes or 1e9)
    todo = [job for job in chosen(options) if str(job) not in journal.over]
    lock, begun = threading.Lock(), time.monotonic()

    def note(line: dict[str, Any]) -> None:
        with lock:
            journal.done(line)
            if len(journal.rows) % 50 == 0 and "status" in line:
                print(f"{time.monotonic() - begun:6.0f}s {len(journal.rows)} samples", flush=True)
            if line.get("status", "ok") not in ("ok", "fails-bare"):
                print(
                    f"{time.monotonic() - begun:6.0f}s {line['job']}#{line['sample']} {line['status']}",
                    flush=True,
                )

    print(f"{len(todo)} jobs; journal {journal.path}", flush=True)
    journal.note_versions(options.device)
    where = nullcontext() if options.ray is None else connected(options.ray, "--ray")
    made = tempfile.TemporaryDirectory(prefix="kernelscope-sweep.", ignore_cleanup_errors=True)
    with where as ray, made as temporary:
        cache = (options.cache or Path(temporary)).resolve()
        settings = Settings(
            options.device, options.samples, options.first, options.timeout, ends, cache, options.threads, ray
        )
        free = max(1, (os.cpu_count() or 2) // 2) if ray is None else workers_of(ray, len(todo) or 1)
        Pool(settings, note).run(todo, journal.tried, options.jobs or free)
    if time.monotonic() >= ends:
        print("stopped because the time was over; the same command continues")


if __name__ == "__main__":
    sys.exit(main())
