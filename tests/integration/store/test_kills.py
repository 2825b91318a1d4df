"""kill -9 at full speed: no completed call is missing, and only the newest calls lack their hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

import kernelscope

# Forks, because a process that starts and compiles takes as long as many kills.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
import kernelscope

torch.set_num_threads(1)

@torch.compile
def smallest(x):
    return (x + 1).sum(0)

x = torch.ones(4, 4)
smallest(x)
home, kills, cores = Path(sys.argv[1]), int(sys.argv[2]), sorted(os.sched_getaffinity(0))
for number in range(kills):
    done = home / f"done-{number}"
    done.write_bytes(bytes(8))
    pid = os.fork()
    if not pid:
        os.sched_setaffinity(0, cores[:1] if number % 2 else cores[:2])
        file = os.open(done, os.O_WRONLY)
        with kernelscope.record(path=home / f"run-{number}", values="hash"):
            for count in range(1, 1 << 40):
                smallest(x)
                os.pwrite(file, time.process_time_ns().to_bytes(8, "little"), 8 * count)
                os.pwrite(file, count.to_bytes(8, "little"), 0)
    deadline = time.monotonic() + 60
    while int.from_bytes(done.read_bytes()[:8], "little") < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.Random(number).uniform(0.1, 1.5))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), status
    print(number, flush=True)
"""


def killed(folder: Path, kills: int) -> list[list[int]]:
    """For each process: the CPU time that it had used after each of its completed calls, in nanoseconds."""
    script = folder / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(kills)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    times = []
    for number in range(kills):
        words = array("q", (folder / f"done-{number}").read_bytes())
        times.append(list(words[1 : 1 + words[0]]))
    return times


def check(folder: Path, kills: int, seconds: float) -> None:
    """CPU time of the killed process, because other work on the machine keeps it from running at all."""
    worst = 0.0
    for number, times in enumerate(killed(folder, kills)):
        completed = len(times)
        assert completed >= 100
        run = kernelscope.load(folder / f"run-{number}")
        calls = [call.recorded for call in run.calls]
        assert len(calls) >= completed, f"kill {number}: {completed - len(calls)} completed calls are missing"
        assert [call.index for call in calls] == list(range(len(calls)))
        without = [call.index for call in calls[:completed] if not call.pre and not call.post]
        assert len(without) < completed, "the writer was here"
        oldest = (times[-1] - times[without[0]]) / 1e9 if without else 0.0
        worst = max(worst, oldest)
        assert oldest <= seconds, f"kill {number}: a call {oldest:.2f} s before the kill has no hash"
    print(f"\nthe oldest call without a hash: {worst:.2f} s of CPU time before the kill")


def test_a_killed_process_leaves_every_completed_call(tmp_path: Path) -> None:
    check(tmp_path, 3, seconds=0.5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_killed_processes_leave_every_completed_call(tmp_path: Path) -> None:
    check(tmp_path, 100, seconds=0.5)
