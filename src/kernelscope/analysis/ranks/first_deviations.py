"""From all deviations to the answer: the first of each rank, and the earliest over all ranks."""

from __future__ import annotations

from collections.abc import Sequence

from .deviation import CHANGED, COMPUTED, RECHECK, Deviation, RanksResult, RankSummary

_FROM_ONE_CAUSE = {CHANGED: 0, RECHECK: 1, COMPUTED: 2}


def answer(
    summaries: Sequence[RankSummary],
    world_size: int,
    found: list[Deviation],
    checked: dict[str, int],
    notes: Sequence[str],
) -> RanksResult:
    """Sorts `found` in place, the earliest first; of one place the kind that explains the others."""
    found.sort(key=_order)
    firsts: dict[int, Deviation] = {}
    for each in found:
        firsts.setdefault(each.rank, each)
    listed = sorted(firsts.values(), key=_order)
    return RanksResult(tuple(summaries), world_size, tuple(listed), len(found), checked, tuple(notes))


def _order(deviation: Deviation) -> tuple[int, ...]:
    return *deviation.order, _FROM_ONE_CAUSE.get(deviation.kind, 3), deviation.rank
