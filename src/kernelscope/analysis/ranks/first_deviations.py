"""From all deviations to the answer: the first of each rank, and the earliest over all ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from kernelscope.text.amounts import counted

from .contents import UNRECORDED
from .deviation import CHANGED, COMPUTED, ORDER, RECHECK, Deviation, RanksResult, RankSummary

_FROM_ONE_CAUSE = {ORDER: 0, CHANGED: 1, RECHECK: 2, COMPUTED: 3}


def answer(
    summaries: Sequence[RankSummary],
    world_size: int,
    found: list[Deviation],
    checked: dict[str, int],
    notes: Sequence[str],
    open_question: str = "",
) -> RanksResult:
    """Sorts `found` in place, the earliest first; of one place the kind that explains the others."""
    found.sort(key=_order)
    firsts: dict[int, Deviation] = {}
    for each in found:
        firsts.setdefault(each.rank, each)
    listed = sorted(firsts.values(), key=_order)
    return RanksResult(
        tuple(summaries), world_size, tuple(listed), len(found), checked, tuple(notes), open_question
    )


def _order(deviation: Deviation) -> tuple[int, ...]:
    return *deviation.order, _FROM_ONE_CAUSE.get(deviation.kind, 4), deviation.rank


def take_out_the_programs_writes(found: list[Deviation], summaries: Sequence[RankSummary]) -> list[str]:
    """Memory that changes at the same place of the program on all ranks is written by the program: a note.

    In any step: a callback of torch's may be seen in one step and run on another thread in the next. But an
    optimizer has many tensors at one place: there, it must be the same number on all ranks in the same step,
    or in an earlier one of a rank that has ended before.
    """
    steps: dict[Any, dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))  # by place and rank
    for each in found:
        if each.kind == CHANGED:
            steps[_place(each)][each.rank][each.step] += 1

    def is_programs(deviation: Deviation) -> bool:
        seen, step = steps[_place(deviation)], deviation.step
        if deviation.phase != "optimizer":
            return all(seen[rank.rank] for rank in summaries)
        mine = seen[deviation.rank][step]
        return all(
            seen[rank.rank][step] >= mine or (seen[rank.rank] and rank.steps <= step) for rank in summaries
        )

    own = [each for each in found if each.kind == CHANGED and is_programs(each)]
    if not own:
        return []
    found[:] = [each for each in found if not (each.kind == CHANGED and is_programs(each))]
    places = len({_place(each) for each in own})
    at = f" at {own[0].origin}" if own[0].origin is not None else ""
    return [
        f"on all {len(summaries)} ranks, {UNRECORDED} wrote to memory that {counted(places, 'call')} of the "
        f"program read or wrote, first {own[0].argument or 'an argument'} of call {own[0].index}, "
        f"{own[0].kernel_name}{at}: that memory was not checked"
    ]


def _place(deviation: Deviation) -> tuple[Any, ...]:
    origin = deviation.origin
    line = (origin.file, origin.line) if origin is not None else None
    return deviation.kernel_name, deviation.argument, line
