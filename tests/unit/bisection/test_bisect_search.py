"""The search of bisect, against an oracle that knows the causes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.bisection.needed_switches import Found, drive, find_cause, find_causes, upcoming
from kernelscope.trials.runner import MOST, confidence_of, repeats_needed


class Oracle:
    """Fails when all switches of one of the causes are on; counts how often it is asked."""

    def __init__(self, *causes: set[int], always: bool = False) -> None:
        self.causes = causes
        self.always = always
        self.asked: list[frozenset[int]] = []

    def __call__(self, on: frozenset[int]) -> bool:
        self.asked.append(on)
        return self.always or any(cause <= on for cause in self.causes)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_one_cause_takes_few_trials(given: tuple[int, int]) -> None:
    n, planted = given
    oracle = Oracle({planted})
    found = drive(find_cause(range(n)), None, oracle)
    assert found.causes == ((planted,),)
    assert len(oracle.asked) <= math.ceil(math.log2(n)) + 2
    # It has really been seen to fail alone, and to pass without.
    assert frozenset({planted}) in oracle.asked or n == 1
    assert any(planted not in on for on in oracle.asked)


SETS = st.integers(2, 200).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1, max_size=5))
)


@given(SETS)
def test_causes_that_act_together_are_all_named(given: tuple[int, set[int]]) -> None:
    n, planted = given
    oracle = Oracle(planted)
    found = drive(find_cause(range(n)), None, oracle)
    assert found.causes == (tuple(sorted(planted)),)
    assert len(oracle.asked) <= len(planted) * (math.ceil(math.log2(n)) + 1) + 2


@given(SETS, st.integers(0, 10))
def test_causes_that_act_alone_are_all_named(given: tuple[int, set[int]], seed: int) -> None:
    n, planted = given
    found = drive(find_causes(range(n)), None, Oracle(*({each} for each in planted)))
    assert set(found.causes) == {(each,) for each in planted}
    assert set(found.cure) == planted


@settings(max_examples=200)
@given(st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=3), st.booleans())
def test_the_cure_helps_and_each_cause_is_minimal(planted: list[set[int]], probe: bool) -> None:
    oracle = Oracle(*planted)
    found = drive(find_causes(range(31), probe=probe), None, oracle)
    assert not oracle(frozenset(range(31)) - set(found.cure))
    for cause in found.causes:
        assert oracle(frozenset(cause))
        assert not any(oracle(frozenset(cause) - {each}) for each in cause)


@given(SETS, st.data())
def test_a_guess_is_believed_only_if_it_is_right(given: tuple[int, set[int]], data: st.DataObject) -> None:
    n, planted = given
    guess = data.draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True))
    found = drive(find_cause(range(n), guess=guess), None, Oracle(planted))
    assert found.causes == (tuple(sorted(planted)),)


def test_a_right_guess_is_quick() -> None:
    oracle = Oracle({700})
    assert drive(find_causes(range(1000), probe=True, guess=[700]), None, oracle).causes == ((700,),)
    assert len(oracle.asked) == 4  # all on, all off, it alone, all but it


@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_what_fails_always_or_never_has_no_cause(n: int, probe: bool) -> None:
    always = drive(find_causes(range(n), probe=probe), None, Oracle(always=True))
    assert (always.causes, always.fails_without) == ((), True)
    never = drive(find_causes(range(n), probe=probe), None, Oracle())
    assert (never.causes, never.fails_with_all) == ((), False)
    assert not always
    assert not never


def test_known_answers_are_not_asked_again() -> None:
    """What a journal has is not tried again: the search goes on where it was."""
    first = Oracle({3}, {11})
    known: dict[frozenset[int], bool] = {}
    found = drive(find_causes(range(16)), known, first)
    again = Oracle({3}, {11})
    assert drive(find_causes(range(16)), dict(known), again) == found == Found(((3,), (11,)))
    assert again.asked == []
    half = dict(list(known.items())[:4])
    assert drive(find_causes(range(16)), half, again) == found
    assert len(again.asked) == len(known) - 4


@given(st.integers(1, 50), st.integers(1, 50), st.floats(0.5, 0.999))
def test_a_flaky_trial_is_repeated_until_it_is_believed(failed: int, more: int, confidence: float) -> None:
    runs = failed + more
    times = repeats_needed(failed, runs, confidence)
    assert times == MOST or confidence_of(times, failed, runs) >= confidence - 1e-9
    assert times == 1 or confidence_of(times - 1, failed, runs) < confidence


def test_a_steady_failure_needs_no_repeats() -> None:
    assert repeats_needed(3, 3, 0.99) == 1
    assert repeats_needed(1, 2, 0.99) == 12
    with pytest.raises(ValueError, match="at least one"):
        repeats_needed(0, 4, 0.99)


@given(SETS, st.integers(1, 7))
def test_the_trials_ahead_are_those_that_are_made(given: tuple[int, set[int]], most: int) -> None:
    """With three or more at once, each second trial has been foreseen whatever the first one gave."""
    n, planted = given
    known: dict[frozenset[int], bool] = {}
    oracle, foreseen = Oracle(planted), list[list[frozenset[int]]]()

    def ask(on: frozenset[int]) -> bool:
        ahead = upcoming(lambda: find_causes(range(n), probe=True), known, most)
        assert ahead[0] == on
        assert len(ahead) == len(set(ahead)) <= most
        if foreseen and most >= 3:
            assert on in foreseen[-1]
        foreseen.append(ahead)
        return oracle(on)

    found = drive(find_causes(range(n), probe=True), known, ask)
    assert found == drive(find_causes(range(n), probe=True), None, Oracle(planted))
