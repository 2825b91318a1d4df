"""A line about what is being built, where that takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

AFTER = 2.0  # seconds


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Print this after two seconds, and how long it took when it is over."""
    start = time.monotonic()
    timer = threading.Timer(AFTER, lambda: say(f"{what} …"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if (seconds := time.monotonic() - start) >= AFTER:
            say(f"{what}: done after {seconds:.0f} s")


def say(text: str) -> None:
    print(f"kernelscope: {text}", file=sys.stderr, flush=True)
