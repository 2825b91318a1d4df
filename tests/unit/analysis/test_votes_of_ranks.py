"""Which of several ranks is wrong."""

from __future__ import annotations

from collections import Counter

from kernelscope.analysis.ranks.votes import vote


def test_the_majority_is_right() -> None:
    decided = vote([7, 7, 9, 7])
    assert (decided.wrong, decided.good, decided.is_decided) == ([2], 0, True)


def test_a_tie_is_decided_by_what_came_out_elsewhere() -> None:
    decided = vote([7, 9], lambda: Counter({9: 3, 7: 1}))
    assert (decided.wrong, decided.good) == ([0], 1)


def test_without_a_majority_all_are_suspect() -> None:
    decided = vote([7, 9], lambda: Counter({9: 1, 7: 1}))
    assert (decided.wrong, decided.good, decided.is_decided) == ([0, 1], None, False)
