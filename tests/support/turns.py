"""Threads that take turns in an order that a seed decides, so that the machine's scheduler does not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

TIMEOUT = 60  # seconds: a thread that never gets its turn fails the test instead of stopping it


def joined(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()


class Turns:
    """One thread at a time goes on; which one is drawn once all of them wait. Without a seed, all go on."""

    def __init__(self, seed: int | None, at_once: int, in_all: int = 0) -> None:
        """`in_all`: pieces of work, `at_once` of which are begun; each thread is one piece by default."""
        self._random = None if seed is None else random.Random(seed)
        self._at_once, self._left = at_once, in_all or at_once
        self._waiting: set[int] = set()
        self._next: int | None = None
        self._changed = threading.Condition()

    @contextmanager
    def taken_by(self, key: int) -> Iterator[Callable[[], None]]:
        """Waits for a turn; the callable lets the others go on, and waits for another one."""
        self._take(key)
        try:
            yield lambda: self._take(key)
        finally:
            with self._changed:
                self._left -= 1
                self._draw()

    def together(self, work: Callable[[int, Callable[[], None]], None]) -> None:
        """Each of the threads does `work(number, turn)`."""

        def run(number: int) -> None:
            with self.taken_by(number) as turn:
                work(number, turn)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(self._at_once)]
        for thread in threads:
            thread.start()
        joined(threads)

    def _take(self, key: int) -> None:
        if self._random is None:
            return
        with self._changed:
            self._waiting.add(key)
            self._draw()
            assert self._changed.wait_for(lambda: self._next == key, TIMEOUT)
            self._waiting.remove(key)
            self._next = None

    def _draw(self) -> None:
        if self._random is not None and 0 < len(self._waiting) == min(self._at_once, self._left):
            self._next = self._random.choice(sorted(self._waiting))
            self._changed.notify_all()
