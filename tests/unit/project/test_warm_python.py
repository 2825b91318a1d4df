"""A program in a fork of a warm process is what it would be in a new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

PROGRAM = """
import atexit, os, sys
sys.stdin.read()
atexit.register(print, "the end")
print(__name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("COLOUR"), os.environ.get("HOME"))
print("said", file=sys.stderr)
raise SystemExit(int(sys.argv[1]))
"""


def test_it_is_what_a_new_process_is(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "HOME"} | {"COLOUR": "red"}
    for words in (["program.py", "3"], ["-m", "program", "0"], ["-c", PROGRAM, "4"]):
        found = warm_python.run(*words, cwd=tmp_path, env=environment)
        line = [sys.executable, *words]
        expected = subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, input=""
        )
        assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
        assert found.stderr == expected.stderr


def test_how_programs_end(warm_python: WarmPython) -> None:
    assert warm_python.run("-c", "import os; os.kill(os.getpid(), 11)").returncode == -signal.SIGSEGV
    failed = warm_python.run("-c", "raise ValueError('no')")
    assert failed.returncode == 1
    assert failed.stderr.endswith("ValueError: no\n")


def test_programs_that_wait_for_each_other_run_at_the_same_time(
    tmp_path: Path, warm_python: WarmPython
) -> None:
    program = (
        "import os, sys, time\n"
        "mine, other, status = sys.argv[1:]\n"
        "open(mine, 'w').close()\n"
        "while not os.path.exists(other): time.sleep(0.01)\n"
        "print(mine[-1])\n"
        "sys.exit(int(status))"
    )
    one, other = tmp_path / "a", tmp_path / "b"
    done = warm_python.run_together(("-c", program, one, other, "3"), ("-c", program, other, one, "4"))
    assert [(each.returncode, each.stdout) for each in done] == [(3, "a\n"), (4, "b\n")]


def test_a_variable_that_is_read_early_is_refused(warm_python: WarmPython) -> None:
    with pytest.raises(AssertionError, match="TORCH_LOGS needs a new process"):
        warm_python.run("-c", "", env={**os.environ, "TORCH_LOGS": "+dynamo"})


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_does_not_outlive_its_test(tmp_path: Path, warm_python: WarmPython) -> None:
    told = threading.Event()

    def too_late(*_: object) -> None:
        if not told.is_set():
            told.set()
            raise TimeoutError

    pid_file = tmp_path / "pid"
    program = f"import os, time\nopen({str(pid_file)!r}, 'w').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)"

    def interrupt() -> None:
        """Signals the thread that waits: one to the process may reach any other."""
        while not (pid_file.exists() and pid_file.stat().st_size):
            time.sleep(0.05)
        while not told.wait(0.5):  # one that comes just before the wait begins does not end it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, too_late)
    watcher = threading.Thread(target=interrupt, daemon=True)
    watcher.start()
    try:
        with pytest.raises(TimeoutError):
            warm_python.run("-c", program)
    finally:
        told.set()
        watcher.join(60)
        signal.signal(signal.SIGUSR1, before)
    pid = int(pid_file.read_text())
    ends = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < ends:
        time.sleep(0.02)
    assert not is_running(pid)
    assert warm_python.run("-c", "print(5)").stdout == "5\n"
