"""Columns of a run: the same from memory and from disk, and a damaged file is a sentence."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.long_runs import copy_with_a_fault, copy_without_a_call, write_long_run
from tests.support.sample_runs import write_sample
from tests.unit.analysis.simulated import chain, simulate

import kernelscope
from kernelscope import RunError
from kernelscope.analysis.diff.search import diff
from kernelscope.store.columns import columns_of


@pytest.mark.parametrize("several", [False, True])
def test_memory_and_disk_agree(tmp_path: Path, several: bool) -> None:
    threads = [(5, 5, 7)[n % 3] for n in range(9)] if several else [5] * 9
    live = simulate(chain(9, list(range(18))), {-1: 1, -2: 2}, steps=3, threads=threads)
    stored = kernelscope.load(live.save(tmp_path / "run"))
    a, b = columns_of(live, found=True), columns_of(stored, found=True)
    for name in ("index", "site", "graph_call", "step", "thread", "left", "found"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.has_hashes
    assert b.has_hashes
    assert a.threads == b.threads == ((5, 7) if several else (5,))


def test_noted_and_full_calls(tmp_path: Path) -> None:
    """Half of the calls of this run have no details, scalars vary, and steps stand in the graph call."""
    write_sample(tmp_path / "run.kscope")
    run = kernelscope.load(tmp_path / "run.kscope")
    columns = columns_of(run)
    assert columns.index.tolist() == [call.index for call in run.calls]
    assert columns.step.tolist() == [call.step for call in run.calls]
    assert columns.thread.tolist() == [call.thread for call in run.calls]
    same = [call.post_hashes == run.calls[0].post_hashes and call.args == run.calls[0].args for call in run]
    assert (columns.left == columns.left[0]).tolist() == same
    assert len(set(columns.left.tolist())) == 20 + 1  # those that are noted are all alike


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8), st.data())
def test_a_changed_or_moved_value_shows(values: list[int], data: st.DataObject) -> None:
    from kernelscope.store.columns import signatures

    def signed(numbers: list[int]) -> int:
        zeros = np.zeros(len(numbers), np.int64)
        return int(signatures(zeros, np.arange(len(numbers)), np.array(numbers, np.uint64), 1)[0])

    at = data.draw(st.integers(0, len(values) - 1))
    other = [v ^ 1 if n == at else v for n, v in enumerate(values)]
    assert signed(values) != signed(other)
    turned = values[::-1]
    assert (signed(values) == signed(turned)) == (values == turned)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE details SET post = 'nonsense' WHERE call = 5",
        'UPDATE details SET post = \'{"0": 1, "1"\' WHERE call = 5',
        "UPDATE details SET post = char(10) WHERE call = 5",
        "UPDATE calls SET graph_call = 'x' WHERE id = 5",
        "UPDATE calls SET site = 999 WHERE id = 5",
        "DELETE FROM calls WHERE id = 5",
        "UPDATE fingerprints SET bits = 'x' WHERE slot = 5",
    ],
)
def test_damage_is_said(tmp_path: Path, damage: str) -> None:
    good = write_long_run(tmp_path / "a.kscope", 100)
    bad = copy_with_a_fault(good, tmp_path / "b.kscope", 50)
    with sqlite3.connect(bad / "run.db") as db:
        db.execute(damage)
    db.close()
    with pytest.raises(RunError, match="damaged"):
        diff(good, bad)


def test_long_runs(tmp_path: Path) -> None:
    """As the benchmark, but shorter: one fault, and one call that is missing."""
    good = write_long_run(tmp_path / "a.kscope", 60_000)
    found = diff(good, copy_with_a_fault(good, tmp_path / "b.kscope", 33_333))
    assert (found.verdict, found.index) == ("nondeterministic-kernel", 33_333)
    assert found.spread.differing == 33_351 - 33_333  # two calls of the next step read the last results
    found = diff(good, copy_without_a_call(good, tmp_path / "c.kscope", 40_007))
    assert (found.verdict, found.index) == ("missing-call", 40_007)
