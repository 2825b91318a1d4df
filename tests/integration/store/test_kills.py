"""kill -9 at full speed: no completed call is missing, and only the newest calls lack their hashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernelscope

# Forks, because a process that starts and compiles takes as long as many kills.
KILLED = """
import json, os, random, signal, sys, time
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
                os.pwrite(file, count.to_bytes(8, "little"), 0)
    deadline = time.monotonic() + 60
    while int.from_bytes(done.read_bytes(), "little") < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.Random(number).uniform(0.1, 1.5))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), status
    print(json.dumps(int.from_bytes(done.read_bytes(), "little")), flush=True)
"""


def killed(folder: Path, kills: int) -> list[int]:
    """The completed calls of each process."""
    script = folder / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(kills)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(folder: Path, kills: int, seconds: float) -> None:
    for number, completed in enumerate(killed(folder, kills)):
        assert completed >= 100
        run = kernelscope.load(folder / f"run-{number}")
        calls = [call.recorded for call in run.calls]
        assert len(calls) >= completed, f"kill {number}: {completed - len(calls)} completed calls are missing"
        assert [call.index for call in calls] == list(range(len(calls)))
        end = max(call.start_ns for call in calls)
        late = [end - call.start_ns for call in calls if not call.pre and not call.post]
        oldest = max(late, default=0) / 1e9
        assert oldest <= seconds, f"kill {number}: a call {oldest:.2f} s before the kill has no hash"
        assert len(late) < len(calls), "the writer was here"


def test_a_killed_process_leaves_every_completed_call(tmp_path: Path) -> None:
    check(tmp_path, 3, seconds=1.0)  # a test machine is busy


@pytest.mark.slow
def test_a_hundred_killed_processes_leave_every_completed_call(tmp_path: Path) -> None:
    check(tmp_path, 100, seconds=0.5)
