"""The search of `kernelscope reduce`, its journal and its failures: nothing here compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.errors import RunError
from kernelscope.reduction.ddmin import ddmin
from kernelscope.reduction.failures import Failure, of_exception
from kernelscope.reduction.journal import CRASHED, TIMED_OUT, Journal, mark, reopen, underway

WRONG = Failure("kernel", "wrong-kernel", "cpp", operators=frozenset({"add", "sin", "mul"}))


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
    smaller = Failure("kernel", "wrong-kernel", "cpp", operators=frozenset({"sin"}))
    assert WRONG.is_same(smaller)
    assert not smaller.is_same(WRONG), "another kernel: it computes more"
    assert not WRONG.is_same(Failure("kernel", "foreign-write", "cpp", operators=frozenset({"sin"})))
    assert not WRONG.is_same(Failure("kernel", "wrong-kernel", "extern", "extern_kernels.mm"))


def test_the_same_exception() -> None:
    one = of_exception(ValueError("size 17 at 0x7f00 of buf3"))
    assert one.is_same(of_exception(ValueError("size 4 at 0x88aa of buf3")))
    assert not one.is_same(of_exception(TypeError("size 17 at 0x7f00 of buf3")))
    assert not one.is_same(of_exception(ValueError("stride 17")))


def test_a_journal_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.begin("a", 4)
    journal.end("a", WRONG, 1.5)
    journal.begin("b", 2)
    journal.end("b", None, 0.5)
    journal.begin("c", 1)  # and the process died
    again = Journal(path, resume=True)
    a, b, c = (again.outcome(key) for key in "abc")
    assert a is not None
    assert a.failure == WRONG
    assert b is not None
    assert (b.failure, b.is_over) == (None, True)
    assert c is not None
    assert (c.how, c.is_over) == (CRASHED, False)
    assert again.outcome("d") is None
    assert again.trials == 3
    found = underway(path)
    assert found is not None
    assert found[0] == "c"
    mark(path, "c", TIMED_OUT)
    assert underway(path) is None
    timed = Journal(path, resume=True).outcome("c")
    assert timed is not None
    assert timed.how == TIMED_OUT


def test_a_trial_that_was_interrupted_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.begin("a", 4)
    reopen(path)  # as the command does, which had said it if the trial had crashed
    assert Journal(path, resume=True).outcome("a") is None
    journal.begin("a", 4)
    crashed = Journal(path, resume=True).outcome("a")
    assert crashed is not None
    assert crashed.how == CRASHED, "the second time it did not come back"


def test_what_was_compiled_ahead_is_tried_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    with journal.ahead("a", 4):
        assert underway(path) is not None, "its time is limited"
    assert underway(path) is None
    again = Journal(path, resume=True)
    assert again.outcome("a") is None
    assert again.trials == 0


def test_what_hung_while_it_was_compiled_ahead_is_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).begin("a", 4)  # and the compiler hangs
    mark(path, "a", TIMED_OUT)
    assert Journal(path, resume=True).has_lost("a")


def test_a_journal_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.begin("a", 4)
    journal.end("a", None, 0.1)
    whole = path.read_text()
    path.write_text(whole + '{"what": "beg')
    assert Journal(path, resume=True).trials == 1
    assert path.read_text() == whole, "the next line does not go on with half of one"
    path.write_text('{"what": "beg\n' + whole)
    with pytest.raises(RunError, match="line 1, is no entry of a journal"):
        Journal(path, resume=True)
    with pytest.raises(RunError, match="add --resume"):
        Journal(path)
