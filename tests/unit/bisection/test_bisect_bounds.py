"""How many trials a bisection takes, with its journal, its trials and its way through the axes."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny.bisection.made_up_compiler import bisected, names

from kernelscope.trials.settings import Switch


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_among_many_switches_few_trials_name_the_cause(given: tuple[int, int]) -> None:
    """The whole way, with journal and trials: ⌈log₂ n⌉ + 2, and one to show that switching it off helps."""
    n, planted = given
    result, compiler = bisected(
        lambda off, b: f"k{planted}" not in off, axes=("kernel",), runs=2, check="shadow",
        switches=[Switch("kernel", f"k{i}") for i in range(n)],
    )  # fmt: skip
    assert names(result, "kernel") == [f"k{planted}"]
    searched = compiler.trials[1:]  # without the second run of the unchanged program
    assert len(searched) <= math.ceil(math.log2(n)) + 2 + 1
    assert len(set(searched)) == len(searched)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 400).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=2, max_size=2))
    )
)
def test_two_switches_that_fail_only_together_are_both_named(given: tuple[int, set[int]]) -> None:
    n, planted = given
    result, _ = bisected(
        lambda off, b: not {f"k{i}" for i in planted} & off, axes=("kernel",), check="shadow",
        switches=[Switch("kernel", f"k{i}") for i in range(n)],
    )  # fmt: skip
    assert set(names(result, "kernel")) == {f"k{i}" for i in planted}
    assert result.causes["kernel"].together
