"""Whether `kernelscope ranks` names what went wrong: bits flipped on one rank, and runs without a fault.

python benchmarks/rank_trials.py            100 flips over 2, 4 and 8 ranks, and 1,000 clean steps on 2
python benchmarks/rank_trials.py --flips 100 --clean-steps 0 --seconds 200 --cores 16
python benchmarks/rank_trials.py --flips 0 --clean-steps 1000 --only "ddp mlp compiled"
python benchmarks/rank_trials.py --check    exit status 1 if a flip was not named, or on a false alarm

DDP and FSDP2, layers and a transformer, eager and compiled, with gloo on the CPU. One line per trial; what
there was no time for is stated. Every call is recorded with hashes and run again (--recheck 1).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report

import kernelscope
from kernelscope.errors import RunError

PROGRAM = Path(__file__).parent / "_rank_program.py"
PAGE = _report.ROOT / "docs" / "ranks.md"
COMBINATIONS = [
    " ".join(each)
    for each in itertools.product(("ddp", "fsdp"), ("mlp", "transformer"), ("compiled", "eager"))
]
STEPS, CLEAN_STEPS = 3, 25  # of one run
GRACE = 90  # seconds after the time is up, for the trials under way
MOST_GRACE = 1800  # for trials that still compute: a machine may be busy with other work
STILL = 60  # seconds in which ranks that compute use a second of CPU time together
_TICKS = os.sysconf("SC_CLK_TCK")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=100, help="in all")
    parser.add_argument(
        "--clean-steps", type=int, default=1000, help="in all, on the smallest number of ranks"
    )
    parser.add_argument("--ranks", default="2,4,8", help="how many ranks a program has")
    parser.add_argument("--only", default="", help="combinations with all these words: fsdp compiled")
    parser.add_argument("--seconds", type=float, default=3600, help="start no trial after this time")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="how many ranks run at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", metavar="FOLDER", help="keep the runs there that were not as expected")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/ranks.md")
    parser.add_argument(
        "--check", action="store_true", help="exit status 1 when something was not as expected"
    )
    return parser.parse_args()


class Launch:
    """The ranks of one program, and what they have told until now."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder, self.size = folder, int(plan["ranks"])
        self._told: dict[str, list[dict[str, Any]]] = {}  # by run: what each rank did
        self._read = [0] * self.size
        self._used = (0.0, time.time())  # CPU seconds, and when there was a second more
        folder.mkdir()
        path = folder / "plan.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        self.only_compiles = bool(plan["only_compiles"])
        threads = "4" if self.only_compiles else "1"
        environ = os.environ | {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": threads}
        environ["CUDA_VISIBLE_DEVICES"] = ""  # FSDP would move the model to a GPU
        self._ranks = []
        for rank in range(self.size):
            with open(folder / f"output-{rank}.txt", "w", encoding="utf-8") as output:
                words = [sys.executable, str(PROGRAM), str(rank), str(path)]
                self._ranks.append(subprocess.Popen(words, env=environ, stdout=output, stderr=output))

    def is_running(self) -> bool:
        return any(rank.poll() is None for rank in self._ranks)

    def stop(self) -> None:
        for rank in self._ranks:
            rank.kill()

    def computes(self) -> bool:
        """Whether the ranks have used CPU time lately; ranks that wait for each other for good have not."""
        used = sum(_cpu_seconds(rank.pid) for rank in self._ranks if rank.poll() is None)
        if used > self._used[0] + 1:
            self._used = used, time.time()
        return time.time() < self._used[1] + STILL

    def stacks(self) -> str:
        """Where the threads of each rank are."""
        sizes = [(self.folder / f"output-{rank}.txt").stat().st_size for rank in range(self.size)]
        for rank in self._ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGUSR1)
        time.sleep(2)
        found = []
        for rank, size in enumerate(sizes):
            text = (self.folder / f"output-{rank}.txt").read_bytes()[size:].decode(errors="replace")
            found.append(f"rank {rank}:\n{text[:3000]}")
        return "\n".join(found)

    def finished(self) -> Iterator[list[dict[str, Any]]]:
        """The runs that all ranks have closed since the last time."""
        for rank in range(self.size):
            path = self.folder / f"told-{rank}.jsonl"
            text = path.read_text(encoding="utf-8")[self._read[rank] :] if path.exists() else ""
            text = text[: text.rfind("\n") + 1]
            self._read[rank] += len(text)
            for line in text.splitlines():
                told = json.loads(line)
                done = self._told.setdefault(told["path"], [])
                done.append(told | {"rank": rank})
                if len(done) == self.size:
                    yield self._told.pop(told["path"])

    def failure(self) -> str:
        """The end of what a rank that failed has printed."""
        for rank, process in enumerate(self._ranks):
            if process.poll():
                text = (self.folder / f"output-{rank}.txt").read_text(encoding="utf-8", errors="replace")
                return f"rank {rank} of {self.size} ended with status {process.poll()}:\n{text[-3000:]}"
        return ""


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def judged(run: str, told: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether a run's answer is the right one."""
    start = time.perf_counter()
    first = told[0]
    flips = [each for each in told if each["flip"]]
    wanted = (flips[0]["rank"], flips[0]["flip"]["kernel"], flips[0]["flip"]["step"]) if flips else None
    try:
        result = kernelscope.ranks(run)
        found = result.first
        named = found and (found.suspects[0] if found.is_certain else -1, found.kernel_name, found.step)
        answer = str(found and (found.kind, found.suspects, found.kernel_name, found.step, found.reason))
        checked = result.checked
    except RunError as error:
        named, answer, checked = (-1, "", -1), str(error), {}
    is_compiled = "compiled" not in first["combination"] or all(each["in_graphs"] for each in told)
    if not is_compiled and not flips:
        answer = "no compiled kernel was launched"
    was_checked = all(checked.get(key) for key in ("collectives", "rechecked"))
    return {
        "is_right": named == wanted and was_checked and (is_compiled or bool(flips)),
        "is_clean": first["is_clean"], "was_planted": bool(flips), "ranks": len(told), "wanted": wanted,
        "in_graph": bool(flips and flips[0]["flip"]["in_graph"]), "answer": answer, "steps": first["steps"],
        "combination": first["combination"], "calls": sum(each["launches"] for each in told),
        "checked": checked, "seconds": max(each["seconds"] for each in told),
        "judged": time.perf_counter() - start, "run": run,
    }  # fmt: skip


class Trials:
    """Starts the programs as cores are free, and judges each run when it is closed."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given, self._folder = given, folder
        self.results: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self._start = time.time()
        self._pool = ProcessPoolExecutor(max(1, given.cores // 4), mp_context=get_context("spawn"))
        self._judging: list[Future[dict[str, Any]]] = []

    def run(self, plans: list[dict[str, Any]]) -> None:
        waiting = sorted(plans, key=lambda plan: (not plan["only_compiles"], -plan["ranks"]))
        running: list[Launch] = []
        number = 0
        until = self._start + self.given.seconds
        while waiting or running or self._judging:
            free = self.given.cores - sum(launch.size for launch in running)
            fitting = [plan for plan in waiting if plan["ranks"] <= free or not running]
            if any(launch.only_compiles for launch in running):  # its programs then find the compiled code
                fitting = [plan for plan in fitting if plan["only_compiles"] or not _is_compiled(plan)]
            if fitting and time.time() < until:
                waiting.remove(fitting[0])
                running.append(Launch(self._folder / str(number), fitting[0] | {"until": until}))
                number += 1
                continue
            if time.time() > until:
                waiting = []
            for launch in list(running):
                computes = launch.computes() and time.time() < until + MOST_GRACE
                self._look_at(launch, running, time.time() > until + GRACE and not computes)
            for future in [future for future in self._judging if future.done()]:
                self._judging.remove(future)
                self._tell(future.result())
            time.sleep(0.1)
        self._pool.shutdown()

    def _look_at(self, launch: Launch, running: list[Launch], is_late: bool) -> None:
        is_running = launch.is_running()  # before it is read: what it told last must not be lost
        for told in launch.finished():
            path = str(launch.folder / told[0]["path"]) + ".kscope"
            self._judging.append(self._pool.submit(judged, path, told))
        failure = launch.failure()
        if is_late and is_running and not failure:
            failure = f"{launch.size} ranks did not finish in time; where they were:\n{launch.stacks()}"
        if is_running and failure:
            launch.stop()
        if failure:
            self.failures.append(failure)
            print(f"FAILED {self.failures[-1]}", flush=True)
        if failure or is_late or not is_running:
            running.remove(launch)

    def _tell(self, done: dict[str, Any]) -> None:
        self.results.append(done)
        word = "clean" if done["is_clean"] else "flip " if done["was_planted"] else "empty"
        right = {"clean": "no alarm", "flip ": "named"}.get(word, "no flip was planted")
        answer = right if done["is_right"] else f"WRONG: wanted {done['wanted']}, got {done['answer']}"
        where = " in rank {} {} step {}".format(*done["wanted"]) if done["wanted"] else ""
        print(
            f"{time.time() - self._start:5.0f} s  {word} {done['ranks']} ranks {done['combination']:24}"
            f"{where}: {answer}  ({done['calls']} launches, {done['steps']} steps, {done['seconds']:.1f} s, "
            f"judged in {done['judged']:.1f} s)",
            flush=True,
        )
        if self.given.keep and not done["is_right"]:
            shutil.copytree(done["run"], Path(self.given.keep) / f"{done['ranks']}-{Path(done['run']).name}")
        shutil.rmtree(done["run"], ignore_errors=True)


def _is_compiled(plan: dict[str, Any]) -> bool:
    return any("compiled" in name for name in plan["combinations"])


def plans(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Programs that together have all flips and clean steps, split so that the cores have work."""
    sizes = [int(size) for size in given.ranks.split(",")]
    chosen = [each for each in COMBINATIONS if set(given.only.split()) <= set(each.split())]
    if not chosen:
        raise SystemExit(f"no combination has all of {given.only!r}; they are: {'; '.join(COMBINATIONS)}")
    # Compiling takes longest: one process for each program fills the cache, while eager ones are tried.
    compiled = [name for name in chosen if "compiled" in name]
    found = [_plan(given, 1, [name], STEPS, only_compiles=True) for name in compiled]
    if given.flips:
        places = [(size, name) for name in chosen for size in sizes]
        flips = [(*places[i % len(places)], i // len(places)) for i in range(given.flips)]
        for size in sizes:
            for names in _parts(chosen, given.cores // (size * len(sizes))):
                own = [(name, trial) for at, name, trial in flips if at == size and name in names]
                found.append(_plan(given, size, names, STEPS, flips=own))
    if given.clean_steps:
        size = min(sizes)
        runs = -(-given.clean_steps // CLEAN_STEPS)
        clean = [(chosen[i % len(chosen)], i // len(chosen)) for i in range(len(chosen), runs)]
        for names in _parts(chosen, given.cores // size):
            own = [(name, trial) for name, trial in clean if name in names]
            found.append(_plan(given, size, names, CLEAN_STEPS, clean=own))
    return found


def _parts(names: list[str], parts: int) -> list[list[str]]:
    """Programs apart that are compiled and that are not."""
    found = []
    for is_compiled in (True, False):
        own = [name for name in names if ("compiled" in name) == is_compiled]
        count = max(1, min(parts // 2, len(own)))
        found += [part for i in range(count) if (part := own[i::count])]
    return found


def _plan(
    given: argparse.Namespace, size: int, names: list[str], steps: int, **trials: Any
) -> dict[str, Any]:
    empty: dict[str, Any] = {"clean": [], "flips": [], "only_compiles": False}
    return {"ranks": size, "combinations": names, "steps": steps, "seed": given.seed} | empty | trials


def table(results: list[dict[str, Any]]) -> str:
    rows = [["ranks", "program", "flips", "named", "in compiled kernels", "clean steps", "alarms"]]
    for key in sorted({(each["ranks"], each["combination"]) for each in results}):
        own = [each for each in results if (each["ranks"], each["combination"]) == key]
        flips = [each for each in own if each["was_planted"]]
        clean = [each for each in own if each["is_clean"]]
        numbers = [
            len(flips), sum(f["is_right"] for f in flips), sum(f["in_graph"] for f in flips),
            sum(c["steps"] for c in clean), sum(not c["is_right"] for c in clean),
        ]  # fmt: skip
        rows.append([str(key[0]), key[1], *map(str, numbers)])
    return "\n".join(_report.aligned(rows))


def main() -> None:
    given = options()
    with tempfile.TemporaryDirectory(prefix="rank-trials-") as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(folder) / "inductor"))
        trials = Trials(given, Path(folder))
        trials.run(plans(given))
    results = trials.results
    print(table(results))
    flips = [each for each in results if each["was_planted"]]
    clean = [each for each in results if each["is_clean"]]
    wrong = [each for each in results if not each["is_right"]]
    stat = {
        "flips": len(flips), "named": sum(each["is_right"] for each in flips),
        "in_compiled_kernels": sum(each["in_graph"] for each in flips),
        "flips_left_out": given.flips - len(flips),
        "clean_steps": sum(each["steps"] for each in clean),
        "alarms": sum(not each["is_right"] for each in clean),
        "calls": sum(each["calls"] for each in results),
        "by_ranks": dict(Counter(str(each["ranks"]) for each in flips)), "failures": len(trials.failures),
    }  # fmt: skip
    print("STAT " + json.dumps(stat))
    if given.write_docs:
        _report.write_table(PAGE, "benchmarks/rank_trials.py", table(results))
    if given.check and (wrong or trials.failures or len(flips) < given.flips):
        sys.exit("something was not as expected")


if __name__ == "__main__":
    main()
