"""Who runs the trials of a script: said where it is not a fork, and ended without harm to anybody else."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelscope.errors import RunError
from kernelscope.trials import trial_processes as module
from kernelscope.trials.outcome import KILLED, Outcome
from kernelscope.trials.trial_processes import Child, Workers, Zygote

# The process to fork from, without the compiler, which takes seconds to load.
COLD = "from kernelscope.trials.zygote import answer\nanswer({})"
BUSY = (
    "import threading\n"
    "threading.Thread(target=threading.Event().wait, name='of-a-library', daemon=True).start()\n"
)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody here is to end, and that answers while it lives."""
    child = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    with child:
        yield child
        child.kill()


def spawned(folder: Path, *words: str) -> tuple[Child, subprocess.Popen[bytes]]:
    for name in ("ask", "tell"):
        os.mkfifo(folder / name)
    process = subprocess.Popen(words, start_new_session=True)
    return Child(process, None, str(folder / "ask"), str(folder / "tell")), process


def test_a_number_that_belongs_to_another_process_is_not_killed(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    child, process = spawned(tmp_path, "true")
    process.wait()  # from now on the system may give its number to another process
    process.pid = bystander.pid
    assert child.end() == Outcome(KILLED, "ended with exit status 0")
    assert bystander.stdin is not None
    assert bystander.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it may still be dying
        bystander.stdin.write(b"still there?\n")
    assert bystander.stdout.readline() == b"still there?\n"


def test_one_that_has_ended_is_waited_for_only_when_it_is_ended(tmp_path: Path) -> None:
    child, process = spawned(tmp_path, sys.executable, "-c", "raise SystemExit(3)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not child.is_running()
    assert process.returncode is None, "its number is still its own"
    assert child.end() == Outcome(KILLED, "ended with exit status 3")


def test_one_that_runs_is_killed_with_its_group(tmp_path: Path) -> None:
    child, process = spawned(tmp_path, "sleep", "1000")
    assert child.is_running()
    assert child.end() is None
    assert process.returncode == -9


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    (tmp_path / "logs").mkdir()
    made = Zygote(tmp_path / "job.json", tmp_path, ("-c", COLD))
    yield made
    made.close()


def test_a_forked_one_is_killed_by_its_parent(zygote: Zygote, tmp_path: Path) -> None:
    """Whose child it is until that has waited for it; nobody else knows whose number it is."""
    assert zygote.why_not_forked() == ""
    for name in ("ask", "tell"):
        os.mkfifo(tmp_path / name)
    paths = (str(tmp_path / "ask"), str(tmp_path / "tell"))
    assert Child(zygote.fork(*paths), zygote, *paths).end() is None, "it was running"
    for path in paths:
        os.mkfifo(path)
    pid = zygote.fork(*paths)
    child = Child(pid, zygote, *paths)
    os.kill(pid, signal.SIGKILL)  # as the system does when it is short of memory
    while child.is_running():
        time.sleep(0.002)
    assert child.end() == Outcome(KILLED, "killed by SIGKILL")
    assert not Path(f"/proc/{pid}").exists()


def test_a_trial_does_not_outlive_the_process_it_was_forked_from(zygote: Zygote, tmp_path: Path) -> None:
    """The system kills the one with the most memory, which may be that; the command says what happened."""
    assert zygote.why_not_forked() == ""
    paths = (str(tmp_path / "ask"), str(tmp_path / "tell"))
    for path in paths:
        os.mkfifo(path)
    pid = zygote.fork(*paths)
    child, handle = Child(pid, zygote, *paths), os.pidfd_open(pid)
    os.killpg(zygote.process.pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"the process to fork from ended \(killed by SIGKILL\)"):
        child.end()
    assert select.select([handle], [], [], 20)[0], "the trial has ended"
    os.close(handle)
    zygote.close()
    assert zygote.process.returncode == -signal.SIGKILL


def test_threads_that_forbid_a_fork_are_named(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    zygote = Zygote(tmp_path / "job.json", tmp_path, ("-c", BUSY + COLD))
    try:
        assert zygote.why_not_forked() == "the process to fork from has 1 more thread (of-a-library)"
    finally:
        zygote.close()


def test_why_trials_are_not_forked_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "torch_is_for_gpus", lambda: True)
    said: list[str] = []
    workers = Workers({}, tmp_path, timeout=20, say=said.append)
    workers.get_ready()
    workers.get_ready()
    assert said == workers.notes
    assert said == [
        "each trial starts a new process instead of a fork: "
        "this torch is built for GPUs, which a forked process cannot use"
    ]
    assert not workers.forks


def test_a_choice_of_the_user_is_not_said(tmp_path: Path) -> None:
    workers = Workers({}, tmp_path, timeout=20, fork=False, say=pytest.fail)
    workers.get_ready()
    assert workers.notes == []
