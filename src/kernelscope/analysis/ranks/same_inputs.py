"""The same kernel with the same inputs must give the same outputs, on whatever rank.

What comes after a wrong result has other inputs and is compared with nothing, so every deviation found here
is where something went wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from kernelscope.analysis.diff.divergence_parts import NONDETERMINISTIC
from kernelscope.analysis.diff.pairs import compare
from kernelscope.analysis.diff.verdicts import judge
from kernelscope.analysis.random_operators import is_random
from kernelscope.events import Site
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import Ints, Words, mixed

from .deviation import COMPUTED, Deviation
from .rank import Rank, communicates, site_key

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MOST_AT_A_SITE = 50  # candidates looked into for one kernel


class SameInputs:
    """All calls of all ranks, grouped by kernel, inputs, and how often a rank has had both before."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        numbers: dict[object, int] = {}
        parts = [self._of_rank(which, rank, numbers) for which, rank in enumerate(ranks)]
        self._rank, self._position, self._key, self._left = (
            np.concatenate([part[i] for part in parts]) for i in range(4)
        )
        self.compared = 0

    def _of_rank(self, which: int, rank: Rank, numbers: dict[object, int]) -> tuple[Ints, Ints, Words, Words]:
        columns = rank.columns
        assert columns.found is not None
        known = {id: numbers.setdefault(site_key(s), len(numbers)) for id, s in columns.sites.items()}
        wanted = np.array([id for id, s in columns.sites.items() if _is_comparable(s)], np.int64)
        at = np.flatnonzero(np.isin(columns.site, wanted))
        most = max(known, default=0) + 1
        table = np.zeros(most, np.uint64)
        for id, number in known.items():
            table[id] = number + 1
        with np.errstate(over="ignore"):
            key = mixed(columns.found[at] + table[columns.site[at]] * _GOLDEN)
        return np.full(len(at), which), at, key, columns.left[at]

    def deviations(self) -> Iterator[Deviation]:
        looked: Counter[str] = Counter()
        for members in self._disagreeing():
            first = self._ranks[self._rank[members[0]]].at(int(self._position[members[0]]))
            looked[first.kernel_name] += 1
            if looked[first.kernel_name] <= _MOST_AT_A_SITE:
                yield from self._judged(members)

    def _disagreeing(self) -> Iterator[Ints]:
        """Groups whose calls left different values."""
        if not len(self._key):
            return
        order = np.lexsort((self._position, self._rank, self._key))
        key, rank = self._key[order], self._rank[order]
        starts = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]) | (rank[1:] != rank[:-1])])
        lengths = np.diff(np.r_[starts, len(key)])
        occurrence = np.arange(len(key)) - np.repeat(starts, lengths)
        again = np.lexsort((rank, occurrence, key))
        order, key, occurrence = order[again], key[again], occurrence[again]
        starts = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]) | (occurrence[1:] != occurrence[:-1])])
        lengths = np.diff(np.r_[starts, len(key)])
        self.compared = int(lengths[lengths > 1].sum())
        left = self._left[order]
        differs = left != np.repeat(left[starts], lengths)
        groups = np.repeat(np.arange(len(starts)), lengths)
        for group in np.unique(groups[differs]):
            yield order[starts[group] : starts[group] + lengths[group]]

    def _judged(self, members: Ints) -> Iterator[Deviation]:
        """The calls of the ranks that are in the minority, or of all where there is none."""
        votes = Counter(self._left[members].tolist())
        most = max(votes.values())
        right = [left for left, count in votes.items() if count == most]
        if len(right) > 1:  # as many say this as that: what did the same call give at other times
            elsewhere = Counter(self._left[self._key == self._key[members[0]]].tolist())
            best = max(elsewhere[left] for left in right)
            right = [left for left in right if elsewhere[left] == best]
        is_known = len(right) == 1
        wrong = [m for m in members.tolist() if not is_known or int(self._left[m]) != right[0]]
        good = next((m for m in members.tolist() if is_known and int(self._left[m]) == right[0]), None)
        suspects = tuple(self._ranks[self._rank[m]].number for m in wrong)
        for m in wrong:
            beside = good if good is not None else next(o for o in members if self._left[o] != self._left[m])
            rank, other = self._ranks[self._rank[m]], self._ranks[self._rank[beside]]
            at, at_other = int(self._position[m]), int(self._position[beside])
            call, other_call = rank.at(at), other.at(at_other)
            difference = compare(call, other_call)
            if difference.inputs or not difference.outputs or not _is_known(call):
                continue
            verdict, _, _ = judge(call, other_call, rank.reader, other.reader)
            if verdict != NONDETERMINISTIC:
                continue
            told = f"rank {other.number} ran the same kernel on the same inputs (call {other_call.index})"
            yield rank.deviation(
                COMPUTED, at, f"it computed something else from the same inputs: {told} and got other values",
                argument=difference.outputs[0].argument,
                suspects=(rank.number,) if is_known else suspects,
                other_rank=other.number, other_index=other_call.index,
            )  # fmt: skip


def _is_comparable(site: Site) -> bool:
    """Whether its outputs follow from what is recorded of its inputs."""
    if communicates(site) or is_random(site.kernel.name):
        return False
    read = [a.tensor for a in site.args if a.tensor is not None and a.role in ("in", "inout")]
    return not any(tensor.unread for tensor in read)


def _is_known(call: KernelCall) -> bool:
    """Whether the contents of everything that it reads are known."""
    pre = call.pre_hashes
    read = [i for i, a in enumerate(call.arguments) if a.tensor is not None and a.role == "in"]
    return all(i in pre for i in read)
