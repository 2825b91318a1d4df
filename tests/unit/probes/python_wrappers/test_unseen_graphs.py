"""Looking for graphs that execute already, while a recording opens."""

from __future__ import annotations

import subprocess
import sys

# Garbage is collected at each allocation of the call in turn: also where Python holds its lock of threads.
PROGRAM = """
import gc, threading
from kernelscope.probes.python_wrappers.unseen_graphs import begun_before

class Kept:
    pass

def leave_garbage():
    one = Kept()
    one.itself, one.local = one, threading.local()
    one.local.number = 1

begun_before()
gc.collect()
for position in range(-5, 120):
    gc.disable()
    leave_garbage()
    gc.set_threshold(max(1, gc.get_count()[0] + position))
    gc.enable()
    assert begun_before() is None
    assert gc.isenabled()
    gc.set_threshold(100000)
    gc.collect()
gc.disable()
begun_before()
print("ended", gc.isenabled())
"""


def test_garbage_of_threads_does_not_stop_the_program() -> None:
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "ended False\n", done.stderr
