"""Differences that may come of calls without a counterpart: what follows from the values decides.

A rank may compute a value by other operators than one process: a product, then the sum over the ranks, then
the bias, where one process has a product with bias. What lies between has no counterpart, although a call of
the same name may stand there. If what is made of it agrees again, nothing was wrong.
"""

from __future__ import annotations

from collections.abc import Container

from kernelscope.model.call import KernelCall

from .mismatch import Mismatch
from .part import inputs, outputs


class OpenQuestions:
    """The mismatches that are not decided yet, by the storages of the reference that they wrote to."""

    def __init__(self) -> None:
        self._unknown: set[int] = set()  # storages whose contents no compared call made
        self._asked: list[Mismatch] = []
        self._agreed: set[int] = set()  # places in the list: a call that reads it agrees
        self._by_storage: dict[int, int] = {}  # who wrote to it last
        self._readers: dict[int, set[int]] = {}  # of one that was asked: later ones that read it

    def has(self, call: KernelCall, position: int) -> bool:
        return position in call.storages and call.storages[position][0] in self._unknown

    def made_alone(self, call: KernelCall) -> None:
        """A call of the reference has no counterpart."""
        self._unknown |= _storages(call, outputs(call))

    def ask(self, found: Mismatch) -> None:
        number = len(self._asked)
        for storage in _storages(found.reference, inputs(found.reference)) & self._by_storage.keys():
            self._readers.setdefault(self._by_storage[storage], set()).add(number)
        self._asked.append(found)
        written = _storages(found.reference, outputs(found.reference))
        self._unknown |= written
        self._by_storage |= dict.fromkeys(written, number)

    def agrees(self, call: KernelCall, fits: Container[int]) -> None:
        """What a call wrote, at these positions, is as the reference has it."""
        for storage in _storages(call, inputs(call)) & self._by_storage.keys():
            self._agreed.add(self._by_storage[storage])
        known = _storages(call, [position for position in outputs(call) if position in fits])
        self._unknown -= known
        for storage in known:
            self._by_storage.pop(storage, None)

    def answers(self) -> tuple[Mismatch | None, list[Mismatch]]:
        """The first of which nothing that follows agrees; and those that were no difference."""
        wrong: set[int] = set()
        for number in reversed(range(len(self._asked))):
            if number not in self._agreed or self._readers.get(number, set()) & wrong:
                wrong.add(number)
        first = self._asked[min(wrong)] if wrong else None
        return first, [each for number, each in enumerate(self._asked) if number not in wrong]


def _storages(call: KernelCall, positions: list[int]) -> set[int]:
    return {call.storages[i][0] for i in positions if i in call.storages}
