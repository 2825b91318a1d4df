"""Collectives in the tables: which ones are one, in which order, and what each gave."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass

from kernelscope.analysis.ranks.collective_order import Key, other_names, stuck_notes
from kernelscope.analysis.ranks.collective_results import collective_reason, disputed
from kernelscope.analysis.ranks.deviation import COLLECTIVE, ORDER

from .dataset import Dataset


@dataclass(frozen=True, slots=True)
class Found:
    """A deviation of which only the place is known; what was called there is read later."""

    kind: str
    rank: int
    index: int
    reason: str
    argument: str | None = None
    suspects: tuple[int, ...] = ()
    other_rank: int | None = None
    other_index: int | None = None


class Meetings:
    """The order of collectives over all ranks; the table `reached` has the level that each rank had where."""

    def __init__(self, tables: Dataset, ranks: list[int]) -> None:
        self._tables, self._ranks = tables, ranks
        self._levels = _levels(tables, ranks)
        met = {"meeting": ("UBIGINT", self._levels), "level": ("BIGINT", self._levels.values())}
        tables.keep("met", met)
        tables.execute(
            'CREATE OR REPLACE TEMP TABLE reached AS SELECT rank, "index", level '
            "FROM collectives JOIN met USING (meeting)"
        )

    def __len__(self) -> int:
        return len(self._levels)

    def notes(self) -> Iterator[str]:
        rows = self._tables.rows(
            'SELECT rank, min("index"), arg_min(kernel_name, "index"), arg_min(process_group, "index"), '
            'arg_min(members, "index"), arg_min(number, "index") '
            "FROM collectives ANTI JOIN met USING (meeting) GROUP BY rank"
        )
        stuck: dict[int, tuple[int, str, Key]] = {
            rank: (index, name, (group, _members(members), number))
            for rank, index, name, group, members, number in rows
        }
        return stuck_notes(stuck, set(self._ranks))

    def deviations(self, decided: Container[int] = ()) -> Iterator[Found]:
        """Without the results of those that are `decided` by what was sent."""
        unlike = (
            "SELECT meeting FROM collectives SEMI JOIN met USING (meeting) GROUP BY meeting "
            "HAVING {condition} ORDER BY meeting"
        )
        other = self._tables.rows(unlike.format(condition="min(kernel_name) <> max(kernel_name)"))
        for rows in self._members_of([meeting for (meeting,) in other]):
            names = {rank: name for rank, _, name, _, _, _, _, _ in rows}
            _, _, _, group, number, _, _, _ = rows[0]
            first, wrong, reason = other_names(number, group, names)
            index = next(row[1] for row in rows if row[0] == wrong)
            yield Found(ORDER, wrong, index, reason, suspects=(first, wrong), other_rank=first)
        is_one = "min(kernel_name) = max(kernel_name)"
        condition = f"min(result) <> max(result) AND {is_one} AND arg_min(is_same_everywhere, rank)"
        unequal = self._tables.rows(unlike.format(condition=condition))
        for rows in self._members_of([meeting for (meeting,) in unequal if meeting not in decided]):
            known = {row[0]: row for row in rows if row[5] is not None}
            for rank, beside, suspects in disputed(list(known), [row[5] for row in known.values()]):
                _, index, _, group, number, _, names, values = known[rank]
                there = dict(zip(known[beside][6], known[beside][7], strict=True))
                unlike_names = [n for n, v in zip(names, values, strict=True) if there.get(n) != v]
                if unlike_names:
                    at = known[beside][1]
                    reason = collective_reason(number, group, rank, beside, at)
                    yield Found(COLLECTIVE, rank, index, reason, unlike_names[0], suspects, beside, at)

    def _members_of(self, meetings: list[int]) -> Iterator[list[tuple]]:  # type: ignore[type-arg]
        """The rows of each of these collectives, by rank."""
        self._tables.keep("wanted", {"meeting": ("UBIGINT", meetings)})
        found = defaultdict(list)
        for meeting, *row in self._tables.rows(
            'SELECT meeting, rank, "index", kernel_name, process_group, number, result, "names", "values" '
            "FROM collectives SEMI JOIN wanted USING (meeting) ORDER BY meeting, rank"
        ):
            found[meeting].append(tuple(row))
        return iter(found.values())


def _levels(tables: Dataset, ranks: list[int]) -> dict[int, int]:
    """Each collective at which all its ranks arrive, and how many must come before it, itself included.

    Ranks that go from one collective to the same next one are one edge, however many they are.
    """
    present = set(ranks)
    groups = tables.rows("SELECT hash(members), any_value(members) FROM collectives GROUP BY 1")
    expected = {group: sum(rank in present for rank in _members(members)) for group, members in groups}
    absent = {
        meeting: expected[group] - arrived
        for meeting, group, arrived in tables.rows(
            "SELECT meeting, any_value(hash(members)), count(*) FROM collectives GROUP BY meeting"
        )
    }
    following: dict[int, list[int]] = defaultdict(list)
    arriving: Counter[int] = Counter()
    for before, meeting in tables.rows(
        'SELECT DISTINCT lag(meeting) OVER (PARTITION BY rank ORDER BY "index") AS before, meeting '
        "FROM collectives"
    ):
        if before is not None:
            following[before].append(meeting)
            arriving[meeting] += 1
    levels: dict[int, int] = {}
    highest: Counter[int] = Counter()
    ready = [meeting for meeting, missing in absent.items() if missing <= 0 and not arriving[meeting]]
    while ready:
        meeting = ready.pop()
        levels[meeting] = highest[meeting] + 1
        for later in following[meeting]:
            highest[later] = max(highest[later], levels[meeting])
            arriving[later] -= 1
            if not arriving[later] and absent[later] <= 0:
                ready.append(later)
    return levels


def _members(text: str) -> tuple[int, ...]:
    return tuple(int(rank) for rank in text.split(",") if rank)
