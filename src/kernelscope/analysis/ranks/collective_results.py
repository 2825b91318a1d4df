"""What a collective gave must be the same wherever it should, and what was sent must arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .collective_order import Meeting
from .deviation import COLLECTIVE, Deviation
from .rank import Rank
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
    number, position = next(iter(meeting.positions.items()))
    columns = ranks[number].columns
    name = columns.sites[int(columns.site[position])].kernel.name
    return any(word in name for word in _SAME_EVERYWHERE)


def result_deviations(ranks: Sequence[Rank], unequal: Sequence[Unequal]) -> Iterator[Deviation]:
    by_number = {rank.number: rank for rank in ranks}
    for each in unequal:
        yield from _deviations(by_number, each)


def _deviations(ranks: dict[int, Rank], unequal: Unequal) -> Iterator[Deviation]:
    meeting, known = unequal.meeting, unequal.gave
    calls = {number: ranks[number].at(meeting.positions[number]) for number in known}
    votes = Counter(unequal.value(number) for number in known)
    most = max(votes.values())
    right = [value for value, count in votes.items() if count == most]
    wrong = [n for n in known if len(right) > 1 or unequal.value(n) != right[0]]
    good = next((n for n in known if n not in wrong), wrong[0])
    for number in wrong:
        other = good if good != number else wrong[-1]
        names = [
            calls[number].arg_names[i] for i, value in known[number].items() if known[other].get(i) != value
        ]
        if not names:
            continue
        yield ranks[number].deviation(
            COLLECTIVE, meeting.positions[number],
            f"collective {meeting.number} of group {meeting.group} must give all its ranks the same, and "
            f"gave rank {number} other values than rank {other} (call {calls[other].index})",
            argument=names[0], suspects=(number,) if len(right) == 1 else tuple(wrong),
            other_rank=other, other_index=calls[other].index,
        )  # fmt: skip
