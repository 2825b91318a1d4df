"""The same kernel with the same inputs must give the same outputs, on whatever rank.

What comes after a wrong result has other inputs and is compared with nothing, so every deviation found here
is where something went wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernelscope.analysis.diff.pairs import compare
from kernelscope.analysis.diff.verdicts import alignments, settings_of
from kernelscope.analysis.random_operators import adopts_memory, is_random
from kernelscope.events import Site
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import Ints, Words, mixed, text_word
from kernelscope.text.operator_names import is_custom

from .deviation import COMPUTED, Deviation
from .rank import Rank, communicates, site_key
from .votes import Vote, vote

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MOST_OF_A_KERNEL = 50  # candidates looked into for one kernel, the earliest first


class SameInputs:
    """All calls of all ranks, grouped by kernel, inputs, and how often a rank has had both before."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        parts = [(np.full(len(calls.at), which), calls) for which, calls in enumerate(map(comparable, ranks))]
        self._rank = np.concatenate([which for which, _ in parts])
        self._position = np.concatenate([calls.at for _, calls in parts])
        self._key = np.concatenate([calls.key for _, calls in parts])
        self._inputs = np.concatenate([calls.inputs for _, calls in parts])
        self._left = np.concatenate([calls.left for _, calls in parts])
        self.compared = 0

    def deviations(self) -> Iterator[Deviation]:
        looked: Counter[str] = Counter()
        for members in self._disagreeing():
            first = self._ranks[self._rank[members[0]]].at(int(self._position[members[0]]))
            looked[first.kernel_name] += 1
            if looked[first.kernel_name] <= MOST_OF_A_KERNEL:
                yield from self._judged(members)

    def _disagreeing(self) -> list[Ints]:
        """Groups whose calls left different values, the earliest first."""
        if not len(self._key):
            return []
        order = np.lexsort((self._rank, self._key))
        key = self._key[order]
        starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        lengths = np.diff(np.r_[starts, len(key)])
        self.compared = int(lengths[lengths > 1].sum())
        left = self._left[order]
        differs = left != np.repeat(left[starts], lengths)
        groups = np.repeat(np.arange(len(starts)), lengths)
        found = [order[starts[g] : starts[g] + lengths[g]] for g in np.unique(groups[differs])]
        return sorted(found, key=lambda members: min(self._place(m) for m in members.tolist()))

    def _place(self, member: int) -> tuple[int, int, int]:
        columns, at = self._ranks[self._rank[member]].columns, self._position[member]
        return int(columns.step[at]), int(columns.index[at]), int(self._key[member])

    def _judged(self, members: Ints) -> Iterator[Deviation]:
        """The calls of the ranks that are in the minority, or of all where there is none."""
        left = self._left[members].tolist()
        decided = vote(left, lambda: Counter(self._left[self._inputs == self._inputs[members[0]]].tolist()))
        numbers = [self._ranks[which].number for which in self._rank[members].tolist()]
        for place in decided.wrong:
            other_place = beside(left, decided, place)
            rank, other = (self._ranks[self._rank[members[p]]] for p in (place, other_place))
            at, at_other = (int(self._position[members[p]]) for p in (place, other_place))
            call, other_call = rank.at(at), other.at(at_other)
            difference = compare(call, other_call)
            if difference.inputs or not difference.outputs or not is_known(call):
                continue
            if alignments(call) != alignments(other_call):
                continue  # then a library may use other instructions, which round otherwise
            is_same = settings_of(call, rank.reader) == settings_of(other_call, other.reader)
            yield rank.deviation(
                COMPUTED, at, computed_reason(rank.number, other.number, other_call.index, is_same=is_same),
                argument=difference.outputs[0].argument, suspects=suspects(numbers, decided, place),
                other_rank=other.number, other_index=other_call.index,
            )  # fmt: skip


def beside(left: Sequence[int], decided: Vote, place: int) -> int:
    """With which member one that is wrong is compared."""
    if decided.good is not None:
        return decided.good
    return next(other for other, value in enumerate(left) if value != left[place])


def suspects(numbers: Sequence[int], decided: Vote, place: int) -> tuple[int, ...]:
    return (numbers[place],) if decided.is_decided else tuple(numbers[wrong] for wrong in decided.wrong)


def computed_reason(rank: int, other_rank: int, other_index: int, *, is_same: bool) -> str:
    told = f"rank {other_rank} ran the same kernel on them (call {other_index})"
    if not is_same:
        told += f", with different settings, which `kernelscope diff RUN --ranks {other_rank},{rank}` shows"
    return f"it computed a different result from the same inputs: {told}"


@dataclass(frozen=True, slots=True)
class ComparableCalls:
    """The calls of a rank whose outputs follow from what is recorded of their inputs."""

    at: Ints  # positions
    inputs: Words  # kernel and inputs
    key: Words  # these, and how often the rank has had both before
    left: Words


def comparable(rank: Rank) -> ComparableCalls:
    columns = rank.columns
    assert columns.found is not None
    wanted = [id for id, site in columns.sites.items() if _is_comparable(site)]
    at = np.flatnonzero(np.isin(columns.site, np.array(wanted, np.int64)))
    words = np.zeros(max(columns.sites, default=0) + 1, np.uint64)
    for id in wanted:
        words[id] = text_word(repr(site_key(columns.sites[id])))
    with np.errstate(over="ignore"):
        inputs = mixed(columns.found[at] + words[columns.site[at]])
        before = _occurrences(inputs)
        key = np.where(before == 0, inputs, mixed(inputs + before * _GOLDEN))
    return ComparableCalls(at, inputs, key, columns.left[at])


def _occurrences(inputs: Words) -> Words:
    """How often each word stands before its place."""
    order = np.argsort(inputs, kind="stable")
    ordered = inputs[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(inputs) else order
    lengths = np.diff(np.r_[starts, len(inputs)])
    found = np.zeros(len(inputs), np.uint64)
    found[order] = np.arange(len(inputs)) - np.repeat(starts, lengths)
    return found


def _is_comparable(site: Site) -> bool:
    """Whether its outputs follow from what is recorded of its inputs."""
    name = site.kernel.name
    is_own = is_custom(site.kernel.kind, name)
    if communicates(site) or is_own or is_random(name) or adopts_memory(name):
        return False
    read = [a.tensor for a in site.args if a.tensor is not None and a.role in ("in", "inout")]
    return not any(tensor.unread for tensor in read)


def is_known(call: KernelCall) -> bool:
    """Whether the contents of everything that it reads are known."""
    pre = call.pre_hashes
    read = [i for i, a in enumerate(call.arguments) if a.tensor is not None and a.role == "in"]
    return all(i in pre for i in read)
