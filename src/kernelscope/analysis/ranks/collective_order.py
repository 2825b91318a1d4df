"""Collectives tie the orders of the ranks together: each is one moment for all ranks of its group."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .deviation import ORDER, Deviation
from .rank import Rank

Key = tuple[str, tuple[int, ...], int]  # group, its ranks, number in the group


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective: where it stands on each rank that has it."""

    group: str
    number: int
    level: int
    positions: dict[int, int]  # by rank


class CollectiveOrder:
    """Which collectives are one, how many come before each call, and where the ranks do not meet."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = {rank.number: rank for rank in ranks}
        self.meetings: list[Meeting] = []
        self.stuck: dict[int, tuple[int, Key]] = {}  # rank: the collective at which it waits in vain
        queues = {rank.number: numbered(rank) for rank in ranks}
        heads = dict.fromkeys(queues, 0)
        levels = dict.fromkeys(queues, 0)
        reached: dict[int, list[tuple[int, int]]] = {rank: [] for rank in queues}
        ready = list(queues)
        waiting: dict[Key, dict[int, int]] = {}
        while ready:
            rank = ready.pop()
            if heads[rank] >= len(queues[rank]):
                continue
            position, key = queues[rank][heads[rank]]
            present = waiting.setdefault(key, {})
            present[rank] = position
            if len(present) < sum(member in queues for member in key[1]):
                continue
            level = 1 + max(levels[each] for each in present)
            self.meetings.append(Meeting(key[0], key[2], level, present))
            del waiting[key]
            for each, at in present.items():
                levels[each] = level
                reached[each].append((at, level))
                heads[each] += 1
                ready.append(each)
        for number in queues:
            if heads[number] < len(queues[number]):
                self.stuck[number] = queues[number][heads[number]]
        for rank_ in ranks:
            _set_levels(rank_, reached[rank_.number])

    def notes(self) -> Iterator[str]:
        calls = {rank: self._ranks[rank].at(position) for rank, (position, _) in self.stuck.items()}
        stuck = {r: (calls[r].index, calls[r].kernel_name, key) for r, (_, key) in self.stuck.items()}
        return stuck_notes(stuck, self._ranks)

    def deviations(self) -> Iterator[Deviation]:
        """Ranks that were in different collectives at the same time."""
        for meeting in self.meetings:
            names = {r: self._ranks[r].kernel_at(p) for r, p in meeting.positions.items()}
            if len(set(names.values())) == 1:
                continue
            first, other, reason = other_names(meeting.number, meeting.group, names)
            yield self._ranks[other].deviation(
                ORDER, meeting.positions[other], reason, suspects=(first, other), other_rank=first
            )


def other_names(number: int, group: str, names: dict[int, str]) -> tuple[int, int, str]:
    """Two ranks that ran different collectives at the same place, and a sentence about it."""
    first, *others = sorted(names)
    other = next(r for r in others if names[r] != names[first])
    told = f"rank {other} runs {names[other]}, and rank {first} {names[first]}"
    return first, other, f"at collective {number} of group {group} {told}"


def stuck_notes(stuck: dict[int, tuple[int, str, Key]], present: Container[int]) -> Iterator[str]:
    """`stuck` has, by rank, the index and the name of the collective at which it is alone."""
    for rank, (index, name, key) in sorted(stuck.items()):
        absent = [r for r in key[1] if r in present and (r not in stuck or stuck[r][2] != key)]
        yield (
            f"rank {rank} is alone at collective {key[2]} of group {key[0]} (call {index}, {name}): "
            f"it has no partner on {_ranks_text(absent)}; "
            "what follows was compared without the order of collectives"
        )


def numbered(rank: Rank) -> list[tuple[int, Key]]:
    counts: dict[str, int] = {}
    found = []
    for position, group in rank.collectives:
        number = counts[group] = counts.get(group, -1) + 1
        members = rank.groups.get(group, ())
        found.append((position, (group, members if rank.number in members else (rank.number,), number)))
    return found


def _set_levels(rank: Rank, reached: list[tuple[int, int]]) -> None:
    if reached:
        at, level = (np.array(column, np.int64) for column in zip(*reached, strict=True))
        before = np.searchsorted(
            at, np.arange(len(rank.levels))
        )  # the collective itself comes before its level
        rank.levels = np.where(before > 0, level[np.maximum(before - 1, 0)], 0)


def _ranks_text(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
