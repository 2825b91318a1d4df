"""Broadcasts and all-gathers of loaded ranks: whether each rank got what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelscope.analysis.ranks.collective_order import Meeting
from kernelscope.analysis.ranks.deviation import COLLECTIVE, Deviation
from kernelscope.analysis.ranks.rank import Rank
from kernelscope.analysis.ranks.waits import Waits

from .transfers import compare, is_checked, ordered, transfer


class SentValues:
    """Compares on creation; `meetings` are those where something differs, as (group, number)."""

    def __init__(self, ranks: Sequence[Rank], meetings: Sequence[Meeting]) -> None:
        self._ranks = {rank.number: rank for rank in ranks}
        self._waits = {rank.number: Waits(rank) for rank in ranks}
        self.compared = 0
        self.meetings: set[tuple[str, int]] = set()
        self.deviations = [each for meeting in meetings for each in self._look(meeting)]

    def _look(self, meeting: Meeting) -> Iterator[Deviation]:
        number = min(meeting.positions)
        names = {self._ranks[rank].kernel_at(at) for rank, at in meeting.positions.items()}
        if len(names) > 1 or not is_checked(names.pop()):
            return
        by_rank = {
            rank: transfer(self._ranks[rank].at(at), self._waits[rank].gave(at), self._waits[rank].pieces(at))
            for rank, at in meeting.positions.items()
        }
        members = self._ranks[number].groups.get(meeting.group, ())
        compared, wrong = compare(by_rank, members, meeting.number, meeting.group)
        self.compared += compared
        for each in ordered(wrong):
            self.meetings.add((meeting.group, meeting.number))
            yield self._ranks[each.rank].deviation(
                COLLECTIVE, meeting.positions[each.rank], each.reason, argument=each.argument,
                other_rank=each.other, other_index=by_rank[each.other].index,
            )  # fmt: skip
