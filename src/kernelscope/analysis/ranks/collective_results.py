"""What a collective gave must be the same wherever it should; `sent` compares it with what went in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .collective_order import Meeting
from .deviation import COLLECTIVE, Deviation
from .rank import Rank
from .votes import vote
from .waits import Waits

_SAME_EVERYWHERE = ("allreduce", "all_reduce", "broadcast", "allgather", "all_gather")


@dataclass(frozen=True, slots=True)
class Unequal:
    """A collective that must give all its ranks the same, and did not."""

    meeting: Meeting
    gave: dict[int, dict[int, Any]]  # by rank: what it wrote, by argument

    def value(self, rank: int) -> tuple[Any, ...] | None:
        """What a rank got; none if it was not there or its values are not known."""
        return tuple(self.gave[rank].values()) if rank in self.gave else None


def unequal_results(ranks: Sequence[Rank], meetings: Sequence[Meeting]) -> list[Unequal]:
    by_number = {rank.number: rank for rank in ranks}
    waits = {rank.number: Waits(rank) for rank in ranks}
    found = []
    for meeting in meetings:
        if len(meeting.positions) < 2 or not _is_same_everywhere(by_number, meeting):
            continue
        gave = {number: waits[number].gave(at) for number, at in meeting.positions.items()}
        unequal = Unequal(meeting, {number: values for number, values in gave.items() if values})
        if len({unequal.value(number) for number in unequal.gave}) > 1:
            found.append(unequal)
    return found


def _is_same_everywhere(ranks: dict[int, Rank], meeting: Meeting) -> bool:
    names = {ranks[number].kernel_at(position) for number, position in meeting.positions.items()}
    return len(names) == 1 and gives_all_the_same(names.pop())  # different ones are a deviation of their own


def gives_all_the_same(name: str) -> bool:
    return any(word in name for word in _SAME_EVERYWHERE)


def result_deviations(ranks: Sequence[Rank], unequal: Sequence[Unequal]) -> Iterator[Deviation]:
    by_number = {rank.number: rank for rank in ranks}
    for each in unequal:
        yield from _deviations(by_number, each)


def _deviations(ranks: dict[int, Rank], unequal: Unequal) -> Iterator[Deviation]:
    meeting, known = unequal.meeting, unequal.gave
    numbers = sorted(known)
    for number, other, suspects in disputed(numbers, [unequal.value(number) for number in numbers]):
        call, other_call = (ranks[n].at(meeting.positions[n]) for n in (number, other))
        names = [call.arg_names[i] for i, value in known[number].items() if known[other].get(i) != value]
        if not names:
            continue
        yield ranks[number].deviation(
            COLLECTIVE, meeting.positions[number],
            collective_reason(meeting.number, meeting.group, number, other, other_call.index),
            argument=names[0], suspects=suspects, other_rank=other, other_index=other_call.index,
        )  # fmt: skip


def disputed(numbers: Sequence[int], values: Sequence[Any]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Each rank that got a wrong value, one that it is compared with, and which ranks may be wrong."""
    decided = vote(values)
    wrong = [numbers[place] for place in decided.wrong]
    good = wrong[0] if decided.good is None else numbers[decided.good]
    for number in wrong:
        other = good if good != number else wrong[-1]
        yield number, other, (number,) if decided.is_decided else tuple(wrong)


def collective_reason(number: int, group: str, rank: int, other: int, other_index: int) -> str:
    return (
        f"collective {number} of group {group} must give all its ranks the same values, "
        f"but rank {rank} got values that differ from those of rank {other} (call {other_index})"
    )
