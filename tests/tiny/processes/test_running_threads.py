"""Which threads a process has besides the one that asks: each case in a process without any other."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = "import _thread, threading, time\nfrom kernelscope.processes.running_threads import other_threads\n"


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(other_threads())", "[]"),
        # As one that was joined and that the system has not ended yet: Python does not know it.
        ("_thread.start_new_thread(time.sleep, (0.1,))\nprint(other_threads(30))", "[]"),
        (
            "t = threading.Thread(target=time.sleep, args=(60,), daemon=True, name='busy')\n"
            "t.start()\nbegin = time.monotonic()\nprint(other_threads(30), time.monotonic() - begin < 15)",
            "['busy'] True",
        ),
        ("_thread.start_new_thread(time.sleep, (60,))\nprint(len(other_threads(0.05)))", "1"),
    ],
    ids=["alone", "ending", "known to Python", "of a library"],
)
def test_threads_that_are_ending_are_waited_for(program: str, expected: str) -> None:
    assert printed(program) == expected


def test_threads_that_were_joined_are_not_counted() -> None:
    program = (
        "def all_joined():\n"
        "    threads = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(8)]\n"
        "    for t in threads: t.start()\n"
        "    for t in threads: t.join()\n"
        "    return other_threads()\n"
        "print([found for _ in range(50) if (found := all_joined())])"
    )
    assert printed(program) == "[]"
