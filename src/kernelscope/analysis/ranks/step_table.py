"""Ranks by steps: how much each rank did in each step, what was found there, and who agrees with whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .collective_results import Unequal
from .deviation import Deviation
from .rank import Rank

_NOT_THERE = -1


@dataclass(frozen=True, slots=True)
class StepTable:
    """One row for each rank, one column for each step.

    `sides` tells who agrees with whom: ranks with the same number in a column got the same from every
    collective that they shared; 0 is the largest side, and -1 stands where a rank has no call in that step.
    """

    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]
    deviations: tuple[tuple[int, ...], ...]
    sides: tuple[tuple[int, ...], ...]

    def to_json(self, first: int, count: int) -> dict[str, Any]:
        """The columns from one on."""
        chosen = slice(first, first + count)
        form: dict[str, Any] = {"ranks": self.ranks, "steps": self.steps[chosen], "of": len(self.steps)}
        for name in ("calls", "deviations", "sides"):
            form[name] = [row[chosen] for row in getattr(self, name)]
        return form


def step_table(ranks: Sequence[Rank], unequal: Iterable[Unequal], found: Iterable[Deviation]) -> StepTable:
    counts = {rank.number: Counter(rank.columns.step.tolist()) for rank in ranks}
    steps = sorted(set().union(*counts.values()))
    wrong = Counter((each.rank, each.step) for each in found)
    by_step = _by_step({rank.number: rank for rank in ranks}, unequal)
    columns = [
        _sides([number for number, count in counts.items() if count[step]], by_step.get(step, []))
        for step in steps
    ]
    return StepTable(
        tuple(steps),
        tuple(counts),
        tuple(tuple(count[step] for step in steps) for count in counts.values()),
        tuple(tuple(wrong[number, step] for step in steps) for number in counts),
        tuple(tuple(column.get(number, _NOT_THERE) for column in columns) for number in counts),
    )


def _by_step(ranks: dict[int, Rank], unequal: Iterable[Unequal]) -> dict[int, list[Unequal]]:
    found: dict[int, list[Unequal]] = {}
    for each in unequal:
        number, position = min(each.meeting.positions.items())
        found.setdefault(int(ranks[number].columns.step[position]), []).append(each)
    return found


def _sides(present: Sequence[int], unequal: Sequence[Unequal]) -> dict[int, int]:
    """The side of each rank; two ranks are on one side unless a collective gave them different values."""
    sides: list[tuple[list[int], list[Any]]] = []  # its ranks, and what they got from each of the collectives
    for rank in present:
        got = [each.value(rank) for each in unequal]
        for members, known in sides:
            if all(a is None or b is None or a == b for a, b in zip(got, known, strict=True)):
                members.append(rank)
                known[:] = [a if b is None else b for a, b in zip(got, known, strict=True)]
                break
        else:
            sides.append(([rank], got))
    sides.sort(key=lambda side: (-len(side[0]), side[0][0]))
    return {rank: number for number, (members, _) in enumerate(sides) for rank in members}
