"""Which call comes next, and where its cell in the ring is. noter.cpp has the same in C++."""

from __future__ import annotations

from threading import Lock
from typing import Protocol


class Numbers(Protocol):
    """Hands out numbers from 1 on: the index of a call + 1."""

    @property
    def next(self) -> int:
        """The one that comes next."""

    def __call__(self) -> tuple[int, int]:
        """The next one, and the offset of its cell."""

    def take(self, count: int) -> int:
        """So many neighbouring ones; the first of them."""


class PlainNumbers:
    """Numbers, where there is no compiler."""

    def __init__(self, cells: int, header: int, cell: int) -> None:
        self.next = 1
        self._mask, self._header, self._cell = cells - 1, header, cell
        self._lock = Lock()

    def __call__(self) -> tuple[int, int]:
        number = self.take(1)
        return number, self._header + (number - 1 & self._mask) * self._cell

    def take(self, count: int) -> int:
        with self._lock:
            first = self.next
            self.next = first + count
            return first
