"""The greedy choice of kernels, on effects that are known."""

from __future__ import annotations

import math

from kernelscope.precision.search import largest_choice

COSTS = {"a": 1.0, "b": 8.0, "c": 0.5, "d": 3.0, "e": 0.0, "f": math.inf}


def _sum(keys: frozenset[str]) -> float:
    return sum(COSTS[key] for key in keys)


def test_the_cheapest_are_taken_while_their_sum_is_within() -> None:
    found = largest_choice(list(COSTS), _sum, 5.0)
    assert (found.chosen, found.refused) == (["a", "c", "d", "e"], ["b", "f"])
    assert (found.error, found.is_kept, found.together) == (4.5, True, math.inf)
    assert found.alone == COSTS


def test_a_later_one_may_fit_where_an_earlier_one_does_not() -> None:
    def effect(keys: frozenset[str]) -> float:
        return 10.0 if {"a", "c"} <= keys else _sum(keys)  # these two only together

    found = largest_choice(["a", "c", "d"], effect, 5.0)
    assert found.chosen == ["c", "d"]
    assert found.is_kept


def test_a_choice_that_does_not_hold_in_the_last_run_is_not_promised() -> None:
    runs = []

    def effect(keys: frozenset[str]) -> float:
        runs.append(keys)
        return 0.0 if len(runs) < 6 else 9.0  # 3 alone, all, the choice, and then once more

    found = largest_choice(["a", "c", "d"], effect, 5.0)
    assert runs[-1] == {"a", "c", "d"}
    assert not found.is_kept
    assert found.error == 9.0


def test_nothing_fits() -> None:
    found = largest_choice(["b", "f"], _sum, 5.0)
    assert (found.chosen, found.refused, found.error, found.is_kept) == ([], ["b", "f"], 0.0, True)
