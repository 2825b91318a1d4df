"""Buffers that do not hold what their origins suggest: right, if what their readers make of them is right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelscope.shadowing.culprit import Culprit

Key = tuple[int, str]  # graph and buffer


@dataclass(frozen=True, slots=True)
class _Doubt:
    culprit: Culprit
    read: frozenset[Key]  # doubtful buffers that its own kernel was given


class Doubts:
    """Until a reader has decided."""

    def __init__(self) -> None:
        self._found: dict[Key, _Doubt] = {}

    def add(self, key: Key, culprit: Culprit, read: Iterable[Key]) -> None:
        self._found[key] = _Doubt(culprit, frozenset(read))

    def of(self, keys: Iterable[Key]) -> list[Culprit]:
        """Who is to blame if a reader of these is wrong."""
        return [self._found[key].culprit for key in dict.fromkeys(keys) if key in self._found]

    def settle(self, keys: Iterable[Key]) -> None:
        """A reader of these is right, so they are too, and what they were made of."""
        for key in keys:
            if (doubt := self._found.pop(key, None)) is not None:
                self.settle(doubt.read)

    def open(self) -> list[Culprit]:
        return [doubt.culprit for doubt in self._found.values()]
