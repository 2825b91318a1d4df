"""How a command that searches ends before its time: not without its children."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SENT = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Somebody has sent a signal: whatever Ctrl-C ends, and tells how to resume, this does, too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number

    def __str__(self) -> str:
        return f"ended by {signal.Signals(self.status - 128).name}"


@contextmanager
def terminable() -> Iterator[None]:
    """Signals that would end this process at once, and leave its children running, are raised instead."""
    before = {number: signal.getsignal(number) for number in _SENT}
    heard = [number for number, handler in before.items() if handler is signal.SIG_DFL]  # nohup ignores one

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for each in heard:  # one is enough: the next would end what is done about this one
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


@contextmanager
def held_back() -> Iterator[None]:
    """For starting a process: what would end this one in the middle of it does so when the other is known."""
    came: list[int] = []
    heard = [number for number in (*_SENT, signal.SIGINT) if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)
