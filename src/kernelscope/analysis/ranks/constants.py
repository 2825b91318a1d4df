"""Inputs of compiled graphs that hold one value all the time, such as a table of a model.

A recording does not know which memory the inputs of a graph lie in, so a change is seen by comparing: a value
that never changes on any rank must not change on one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelscope.events import Site
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import text_word, word

from .deviation import CHANGED, Deviation
from .rank import Rank, site_key

_LEAST = 2  # calls before and after: one call with another value may have been given other data


@dataclass(slots=True)
class Constant:
    """An input of a kernel that had one value on this rank, or one and then another."""

    key: int  # the same on all ranks
    argument: str
    value: int  # a word of its hash
    before: int = 0  # calls with this value
    changed: int | None = None  # index of the first call with another value
    other: int = 0
    after: int = 0  # calls with the other value

    def see(self, value: int, index: int) -> bool:
        """False if it holds a third value."""
        if self.changed is None and value == self.value:
            self.before += 1
            return True
        if self.changed is None:
            self.changed, self.other = index, value
        self.after += value == self.other
        return value == self.other


class Constants:
    """Collects them from the calls of a rank, in order."""

    def __init__(self) -> None:
        self._found: dict[int, Constant | None] = {}  # by key; None: it varies
        self._keys: dict[tuple[int, int, int], int] = {}  # by site, how often it was launched, argument
        self._graph_call: int | None = None
        self._before: Counter[int] = Counter()  # of this graph call: how often each site was launched
        self._written: set[int] = set()  # of this graph call: storages

    def see(self, call: KernelCall) -> None:
        """A call inside of a graph; what this graph call has written before is not an input of it."""
        if call.graph_call != self._graph_call:
            self._graph_call = call.graph_call
            self._before.clear()
            self._written.clear()
        site, storages, pre = call.site, call.storages, call.pre_hashes
        number = self._before[site.id]
        self._before[site.id] += 1
        for i, arg in enumerate(call.arguments):
            if i not in storages:
                continue
            if arg.role != "in":
                self._written.add(storages[i][0])
            elif i in pre and storages[i][0] not in self._written:
                self._see(self._key(site, number, i), arg.name, word(pre[i]), call.index)

    def _key(self, site: Site, number: int, position: int) -> int:
        known = self._keys.get((site.id, number, position))
        if known is None:
            known = text_word(repr((site_key(site), number, position)))
            self._keys[site.id, number, position] = known
        return known

    def _see(self, key: int, argument: str, value: int, index: int) -> None:
        known = self._found.setdefault(key, Constant(key, argument, value))
        if known is not None and not known.see(value, index):
            self._found[key] = None

    def __iter__(self) -> Iterator[Constant]:
        return (each for each in self._found.values() if each is not None)


def changed_constants(ranks: Mapping[int, Sequence[Constant]]) -> Iterator[tuple[int, Constant, str]]:
    """Rank, what changed on it, and why that is wrong: on all others it has the first value to the end."""
    by_key = {rank: {each.key: each for each in found} for rank, found in ranks.items()}
    for rank, found in by_key.items():
        for key, mine in found.items():
            if mine.changed is None or min(mine.before, mine.after) < _LEAST:
                continue
            others = [each.get(key) for number, each in by_key.items() if number != rank]
            if others and all(_holds(other, mine) for other in others):
                yield rank, mine, _reason(rank, mine)


def _holds(other: Constant | None, mine: Constant) -> bool:
    """Whether another rank has the first value, also while this one has a different one."""
    return (
        other is not None
        and other.changed is None
        and other.value == mine.value
        and other.before >= mine.before + _LEAST
    )


def _reason(rank: int, constant: Constant) -> str:
    return (
        f"{constant.argument} had the same value on all ranks in the {constant.before} earlier calls of this "
        f"kernel, and still has on the other ranks; on rank {rank} its value differs from this call on: its "
        "memory was corrupted, or this rank was given another input"
    )


def constant_deviations(
    ranks: Sequence[Rank], found: Mapping[int, Sequence[Constant]]
) -> Iterator[Deviation]:
    by_number = {rank.number: rank for rank in ranks}
    for number, constant, reason in changed_constants(found):
        rank = by_number[number]
        assert constant.changed is not None
        yield rank.deviation(CHANGED, rank.position(constant.changed), reason, argument=constant.argument)
