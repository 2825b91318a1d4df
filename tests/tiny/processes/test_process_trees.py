"""Processes that are ended with all that they have started, and the signals that do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kernelscope.processes.process_trees import Process, children_of, end_tree, has_ended
from kernelscope.processes.signals import Terminated, held_back, terminable

# A child, a grandchild, and one of these in a session of its own.
TREE = """
import subprocess, sys, time
inner = (
    "import subprocess, time; c = subprocess.Popen(['sleep', '1000']);"
    "print(c.pid, flush=True); time.sleep(1000)"
)
words = [sys.executable, "-c", inner]
first = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
print(first.pid, first.stdout.readline().strip(), flush=True)
time.sleep(1000)
"""


def has_gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def started() -> tuple[subprocess.Popen[bytes], list[int]]:
    child = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        return child, [int(word) for word in child.stdout.readline().split()]


def test_all_of_them_end() -> None:
    child, others = started()
    assert len(others) == 2
    end_tree(child)
    assert child.returncode == -signal.SIGKILL
    assert all(map(has_gone, others))
    end_tree(child)  # once more does nothing


def test_one_s_own_children_end() -> None:
    """In a process that has no others."""
    program = (
        "import subprocess, sys\nfrom kernelscope.processes.process_trees import end_children\n"
        f"child = subprocess.Popen([sys.executable, '-c', {TREE!r}], stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline())\nend_children()\nsys.exit(child.wait(20) + 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    others = [int(word) for word in done.stdout.split()]
    assert len(others) == 2
    assert all(map(has_gone, others))


def test_waiting() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    assert not has_ended(child, 0.05)
    child.kill()
    assert has_ended(child, 20)
    assert has_ended(child, 20), "and is known to have"


def test_a_number_is_not_waited_for_once_it_may_be_another_s() -> None:
    other, child = subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["true"])
    child.wait()
    child.pid = other.pid  # as the system may give it away
    try:
        begin = time.monotonic()
        assert has_ended(child, 20)
        assert time.monotonic() - begin < 10
    finally:
        other.kill()
        other.wait()


def ended_and_followed_by_another() -> tuple[Process, subprocess.Popen[bytes]]:
    """A process that is gone, and a running one that has its number."""
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last_pid, os.W_OK):
        pytest.skip("only an administrator can have a number given to another process")
    for _ in range(50):
        first = subprocess.Popen(["sleep", "1000"])
        gone = Process.of(first.pid)
        first.kill()
        first.wait()
        with suppress(OSError):
            last_pid.write_text(str(gone.pid - 1), encoding="ascii")
        second = subprocess.Popen(["sleep", "1000"])
        if second.pid == gone.pid:
            return gone, second
        second.kill()
        second.wait()
        gone.close()
    pytest.skip("this system does not give a number to another process when told to")


def test_a_process_is_never_taken_for_a_later_one_with_its_number() -> None:
    gone, second = ended_and_followed_by_another()
    try:
        without_handles = replace(gone, handle=None, started=f"{gone.started} earlier")
        for process in (gone, without_handles):
            assert not process.is_there
            assert not process.send(signal.SIGKILL)
            assert children_of([process]) == []
        assert second.poll() is None
    finally:
        gone.close()
        second.kill()
        second.wait()


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """Also under nohup, or in the background of a script, where signals are ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_raised(sent: signal.Signals) -> None:
    before = signal.getsignal(sent)

    def wait() -> None:
        with terminable():
            os.kill(os.getpid(), sent)
            time.sleep(20)

    with pytest.raises(Terminated) as ended:
        wait()
    assert ended.value.status == 128 + sent
    assert str(ended.value) == f"ended by {sent.name}"
    assert signal.getsignal(sent) is before


@pytest.mark.usefixtures("as_in_a_terminal")
def test_a_signal_while_a_process_is_started_comes_afterwards() -> None:
    done: list[str] = []
    before = signal.getsignal(signal.SIGINT)  # ignored, where a shell started the tests in the background

    def start() -> None:
        with terminable():
            with held_back():
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)
                done.append("started")
            done.append("went on")

    with pytest.raises(Terminated):
        start()
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As nohup does it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
