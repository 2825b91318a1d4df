"""A limit for the whole search: when it is over, what runs is ended as by Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class TimeIsUp(KeyboardInterrupt):
    """Ends the same things as Ctrl-C."""

    def __str__(self) -> str:
        return "the time limit was reached"


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp after so many seconds; 0 means no limit."""
    if not seconds:
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
