"""Ends the children of a search that is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SENT = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal was sent: it ends the same things as Ctrl-C, and the same hint says how to resume."""

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
        for each in heard:  # a second one must not interrupt the handling of the first
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
    """Delay signals while a process is started, until it is known and can be ended, too."""
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
