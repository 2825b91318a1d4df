"""What `ranks` says: agreement needs something that was compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelscope.analysis.ranks.deviation import (
    CHANGED,
    COLLECTIVE,
    COMPUTED,
    ORDER,
    Deviation,
    RanksResult,
    RankSummary,
)
from kernelscope.analysis.ranks.first_deviations import answer, take_out_the_programs_writes

DIFFERS = Deviation(
    COMPUTED, 1, "node", 3, 0, "forward", "cpp_add", None, None, "", "it differs", (1,), level=1
)


@pytest.mark.parametrize(
    ("checked", "found", "status", "says"),
    [
        ({"same_inputs": 0, "collectives": 0, "rechecked": 0}, (), 2, "nothing could be compared"),
        ({}, (), 2, "nothing could be compared"),
        ({"same_inputs": 3}, (), 0, "the ranks agree"),
        ({"rechecked": 1}, (), 0, "the ranks agree"),
        ({}, (DIFFERS,), 1, "1 deviation in 0 of 2 ranks"),
    ],
)
def test_agreement_needs_something_compared(
    checked: dict[str, int], found: tuple[Deviation, ...], status: int, says: str
) -> None:
    result = RanksResult((), 2, found, len(found), checked)
    assert result.status == status
    assert says in str(result)
    assert bool(result) is bool(found)


def test_what_differs_and_need_not_is_undecided() -> None:
    result = RanksResult((), 2, (), 0, {"same_inputs": 3}, (), "1 of 4 tensors did not stay the same")
    assert (bool(result), result.status) == (False, 2)
    assert str(result).startswith("undecided: 1 of 4 tensors")
    assert result.to_json()["open_question"] == "1 of 4 tensors did not stay the same"


def test_other_collectives_explain_other_results() -> None:
    found = [replace(DIFFERS, kind=kind) for kind in (COLLECTIVE, COMPUTED, ORDER)]
    result = answer([of_rank(0, 3), of_rank(1, 3)], 2, found, {}, ())
    assert result.first is not None
    assert result.first.kind == ORDER


def changed(rank: int, step: int, phase: str = "forward") -> Deviation:
    return replace(DIFFERS, kind=CHANGED, rank=rank, step=step, phase=phase, suspects=(rank,))


def updated(rank: int, step: int) -> Deviation:
    return changed(rank, step, "optimizer")


def of_rank(rank: int, steps: int) -> RankSummary:
    return RankSummary(rank, rank, "node", f"rank-{rank}", 9, steps, 2, "2.13", True)


@pytest.mark.parametrize(
    ("found", "steps", "kept"),
    [
        ([changed(0, 1), changed(1, 1)], (3, 3), []),
        ([changed(0, 1), changed(1, 2)], (3, 3), []),
        ([changed(0, 1), changed(1, 1), changed(1, 1)], (3, 3), []),
        ([changed(1, 1), changed(1, 2)], (3, 3), [(1, 1), (1, 2)]),
        ([updated(0, 1), updated(1, 2)], (3, 3), [(0, 1), (1, 2)]),
        ([updated(0, 1), updated(1, 1), updated(1, 2)], (2, 3), []),
        ([updated(0, 1), updated(1, 1), updated(1, 2)], (3, 3), [(1, 2)]),
        ([updated(0, 1), updated(1, 1), updated(1, 1)], (3, 3), [(1, 1), (1, 1)]),
        ([changed(1, 2)], (2, 3), [(1, 2)]),
    ],
)
def test_memory_that_changes_on_all_ranks_at_one_place_is_a_note(
    found: list[Deviation], steps: tuple[int, int], kept: list[tuple[int, int]]
) -> None:
    all_of_them = len(found)
    ranks = [of_rank(rank, count) for rank, count in enumerate(steps)]
    result = answer(ranks, 2, found, {}, take_out_the_programs_writes(found, ranks))
    assert [(each.rank, each.step) for each in found] == kept
    assert result.found == len(kept)
    assert [note.startswith("on all 2 ranks") for note in result.notes] == [True] * (len(kept) < all_of_them)
