"""The search of `kernelscope reduce`, its journal and its failures: nothing here compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.errors import RunError
from kernelscope.reduction.ddmin import ddmin
from kernelscope.trials.failure_signature import FailureSignature, of_exception
from kernelscope.trials.journal import REDUCE, Journal, append, reopen, running_trial
from kernelscope.trials.outcome import FAILED, KILLED, PASSED, TIMED_OUT, Outcome

WRONG = FailureSignature("kernel", "wrong-kernel", "cpp", operators=frozenset({"add", "sin", "mul"}))


@given(st.integers(1, 60), st.data())
def test_one_cause_is_found_in_few_trials(n: int, data: st.DataObject) -> None:
    cause, asked = data.draw(st.integers(0, n - 1)), []

    def fails(part: list[int]) -> bool:
        asked.append(tuple(part))
        return cause in part

    assert ddmin(range(n), fails) == [cause]
    assert len(asked) == len(set(asked)), "asked twice"
    assert len(asked) <= 2 * max(1, (n - 1).bit_length())


@given(st.sets(st.integers(0, 30), min_size=1, max_size=5), st.integers(31, 50))
def test_causes_that_need_each_other(causes: set[int], n: int) -> None:
    assert ddmin(range(n), lambda part: causes <= set(part)) == sorted(causes)


@given(st.lists(st.sets(st.integers(0, 15), min_size=1), min_size=1, max_size=4))
def test_what_is_left_is_minimal(ways: list[set[int]]) -> None:
    """Any of several ways to fail: without any one item of the answer, it does not fail."""

    def fails(part: list[int]) -> bool:
        return any(way <= set(part) for way in ways)

    found = ddmin(range(16), fails)
    assert fails(found)
    assert not any(fails([i for i in found if i != left]) for left in found)


def test_the_same_failure() -> None:
    smaller = FailureSignature("kernel", "wrong-kernel", "cpp", operators=frozenset({"sin"}))
    assert WRONG.is_same(smaller)
    assert not smaller.is_same(WRONG), "another kernel: it computes more"
    assert not WRONG.is_same(FailureSignature("kernel", "foreign-write", "cpp", operators=frozenset({"sin"})))
    assert not WRONG.is_same(FailureSignature("kernel", "wrong-kernel", "extern", "extern_kernels.mm"))


def test_the_same_exception() -> None:
    one = of_exception(ValueError("size 17 at 0x7f00 of buf3"))
    assert one.is_same(of_exception(ValueError("size 4 at 0x88aa of buf3")))
    assert not one.is_same(of_exception(TypeError("size 17 at 0x7f00 of buf3")))
    assert not one.is_same(of_exception(ValueError("stride 17")))


def test_a_journal_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, REDUCE)
    journal.begin("a", nodes=4)
    journal.end("a", Outcome(FAILED, str(WRONG), failure=WRONG, seconds=1.5))
    journal.begin("b", nodes=2)
    journal.end("b", Outcome(PASSED, seconds=0.5))
    journal.begin("c", nodes=1)  # and the process died
    again = Journal(path, REDUCE)
    a, b, c = (again.outcome(key) for key in "abc")
    assert a == Outcome(FAILED, str(WRONG), failure=WRONG, seconds=1.5)
    assert b == Outcome(PASSED, seconds=0.5)
    assert c == Outcome(KILLED)
    assert again.outcome("d") is None
    assert again.count == 3
    found = running_trial(path)
    assert found is not None
    assert found[0] == "c"
    append(path, {"trial": "c", "outcome": Outcome(TIMED_OUT).to_json()})
    assert running_trial(path) is None
    assert Journal(path, REDUCE).outcome("c") == Outcome(TIMED_OUT)
    assert Journal(path, REDUCE).count == 3


def test_a_trial_that_was_interrupted_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, REDUCE)
    journal.begin("a", nodes=4)
    reopen(path)  # as the command does, which would have recorded a crash
    assert Journal(path, REDUCE).outcome("a") is None
    journal.begin("a", nodes=4)
    journal.interrupt("a")
    assert Journal(path, REDUCE).outcome("a") is None
    journal.begin("a", nodes=4)
    assert Journal(path, REDUCE).outcome("a") == Outcome(KILLED), "the third time it did not come back"


def test_a_journal_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, REDUCE)
    journal.begin("a", nodes=4)
    journal.end("a", Outcome(PASSED))
    whole = path.read_text()
    path.write_text(whole + '{"begi')
    assert Journal(path, REDUCE).count == 1
    assert path.read_text() == whole, "the next line is not appended to half of one"
    path.write_text('{"begi\n' + whole)
    with pytest.raises(RunError, match="line 1: not an entry of a journal"):
        Journal(path, REDUCE)
    path.write_text(whole + '{"trial": "b"}\n')
    with pytest.raises(RunError, match="line 4: not an entry of a journal"):
        Journal(path, REDUCE)
