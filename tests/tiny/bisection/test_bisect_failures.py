"""What counts as the failure that a search looks for: exceptions, crashes, hangs and varying results."""

from __future__ import annotations

import pytest
from tests.tiny.bisection.made_up_compiler import SWITCHES, bisected, names

from kernelscope.trials.outcome import KILLED, RAISED, TIMED_OUT, Outcome
from kernelscope.trials.runner import SoughtFailure
from kernelscope.trials.settings import Settings


def test_the_exception_that_is_looked_for_is_no_other_way_to_fail() -> None:
    def fails(off: set[str], backend: str) -> bool | Outcome:
        return backend == "" and "k7" not in off and Outcome(RAISED, "ScriptFailed: it exited with 1")

    result, _ = bisected(fails, check="exception")
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    assert not any("differently" in note for note in result.notes)


def test_a_program_that_is_not_deterministic_is_repeated() -> None:
    runs = 0

    def fails(off: set[str], backend: str) -> bool:
        nonlocal runs
        runs += 1
        return backend == "" and "k7" not in off and runs % 3 != 0

    result, compiler = bisected(fails)
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    assert "not deterministic: it failed in 6 of 8 runs" in str(result)
    assert result.repeats == 5
    assert 0.99 <= result.confidence < 1
    everything = Settings(frozenset(s for s in SWITCHES if s.axis == "kernel"))
    assert compiler.trials.count(everything) == 5


def test_all_off_may_break_the_program_in_another_way() -> None:
    def fails(off: set[str], backend: str) -> bool | Outcome:
        if len(off) > 30 and any(name.startswith("k") for name in off):
            return Outcome(RAISED, "AssertionError: no")
        return backend == ""

    result, _ = bisected(fails)
    assert "fails differently: raised: AssertionError: no" in result.innocent["kernel"]


def test_the_exception_that_was_seen_first_is_the_one() -> None:
    def fails(off: set[str], backend: str) -> bool | Outcome:
        if backend:
            return False
        if "k7" in off and 20 < len(off) < 35:
            return Outcome(RAISED, "ValueError: another")
        return Outcome(RAISED, f"RuntimeError: 17 at 0x{id(off):x}") if "k9" not in off else False

    result, _ = bisected(fails, check="exception")
    assert names(result, "kernel") == ["k9 (0, line 9)"]
    assert any("ValueError: another" in note for note in result.notes)


@pytest.mark.parametrize("kind", [KILLED, TIMED_OUT])
def test_a_crash_and_a_hang_are_outcomes(kind: str) -> None:
    end = Outcome(kind, "killed by SIGSEGV")
    result, _ = bisected(lambda off, b: end if b == "" and "k2" not in off else False, check="exception")
    assert names(result, "kernel") == ["k2 (0, line 2)"]
    assert result.failure == "killed by SIGSEGV"


def test_only_exceptions_with_a_message() -> None:
    raised = Outcome(RAISED, "RuntimeError: this one")
    failure = SoughtFailure("exception", "this")
    assert failure.is_met_by(raised)
    assert failure.is_met_by(Outcome(RAISED, "TypeError: also this"))
    assert not failure.is_met_by(Outcome(RAISED, "RuntimeError: that"))
    assert Outcome(RAISED, "E: 3.5 at 0x7f\nmore").signature == Outcome(RAISED, "E: 12 at 0x8").signature


def test_a_program_that_raises_each_time_is_not_run_more_often_than_needed() -> None:
    raised = Outcome(RAISED, "AssertionError: 3 of 8 differ")
    result, compiler = bisected(lambda off, backend: raised)
    assert len(compiler.trials) == 2
    assert result.raised == "raised: AssertionError: 3 of 8 differ"
    assert "The program does not finish" in str(result)
