"""The first divergence and its verdict, on programs of which every value and every fault is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.analysis.simulated import Op, chain, changed, replace, simulate

import kernelscope
from kernelscope import Run, RunError
from kernelscope.analysis.diff.divergence_parts import (
    DIFFERENT_CONFIG,
    DIFFERENT_KERNEL,
    EXTRA_CALL,
    INPUTS_DIFFER,
    MISSING_CALL,
    NONDETERMINISTIC,
)
from kernelscope.analysis.diff.search import diff

INPUTS = {-1: 11, -2: 22}

programs = (
    st.integers(2, 12)
    .flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, 50), min_size=2 * n, max_size=2 * n)))
    .map(lambda given: chain(*given))
)
places = st.integers(0, 11)


def differs(a: Run, b: Run, index: int) -> bool:
    return a.calls[index].post_hashes != b.calls[index].post_hashes


@settings(max_examples=80, deadline=None)
@given(programs, st.integers(1, 3))
def test_equal_runs_agree(ops: list[Op], steps: int) -> None:
    found = diff(simulate(ops, INPUTS, steps), simulate(ops, INPUTS, steps))
    assert not found
    assert found.compared.pairs == len(ops) * steps
    assert found.to_json()["divergence"] is None


@settings(max_examples=150, deadline=None)
@given(programs, places, st.integers(1, 3))
def test_a_kernel_that_is_not_deterministic(ops: list[Op], at: int, steps: int) -> None:
    at %= len(ops)
    a = simulate(ops, INPUTS, steps)
    # The same site: noise is no part of what a site is.
    b = simulate(changed(ops, at, lambda op: replace(op, noise=1)), INPUTS, steps)
    found = diff(a, b)
    assert (found.verdict, found.index, found.argument) == (NONDETERMINISTIC, at, "out_ptr0")
    brute = sum(differs(a, b, n) for n in range(len(a.calls)))
    assert found.compared.differing == brute
    assert found.spread.differing == brute - 1
    for link in found.spread.chain:  # every link hands on what it read from its parent
        parent, child = a.calls[link.parent], a.calls[link.index]
        assert parent.post_hashes[2] in child.pre_hashes.values()


@settings(max_examples=100, deadline=None)
@given(programs, st.sampled_from([-1, -2]))
def test_another_input_of_the_graph(ops: list[Op], which: int) -> None:
    readers = [n for n, op in enumerate(ops) if which in op.reads]
    found = diff(simulate(ops, INPUTS), simulate(ops, INPUTS | {which: 5}))
    assert bool(found) == bool(readers)
    if readers:
        assert (found.verdict, found.index) == (INPUTS_DIFFER, readers[0])
        assert found.source is not None
        assert found.source.kind == "graph-input"
        assert f"arg{-which}_1" in found.source.text


@settings(max_examples=100, deadline=None)
@given(programs, places)
def test_another_number_is_passed(ops: list[Op], at: int) -> None:
    at %= len(ops)
    a, b = (changed(ops, at, lambda op, n=n: replace(op, scalar=n)) for n in (1, 2))  # type: ignore[misc]
    found = diff(simulate(a, INPUTS), simulate(b, INPUTS))
    assert (found.verdict, found.index, found.argument) == (INPUTS_DIFFER, at, "number")
    assert found.source is not None
    assert found.source.kind == "number"


@settings(max_examples=100, deadline=None)
@given(programs, places, st.booleans())
def test_another_kernel(ops: list[Op], at: int, renamed: bool) -> None:
    at %= len(ops)
    change = {"name": f"cpp_fused_other{at}"} if renamed else {"source": "wrong"}
    found = diff(simulate(ops, INPUTS), simulate(changed(ops, at, lambda op: replace(op, **change)), INPUTS))
    assert (found.verdict, found.index) == (DIFFERENT_KERNEL, at)


@settings(max_examples=100, deadline=None)
@given(programs, places, st.booleans())
def test_another_config(ops: list[Op], at: int, matters: bool) -> None:
    at %= len(ops)
    slower = changed(ops, at, lambda op: replace(op, config={"num_warps": 8}, noise=int(matters)))
    found = diff(simulate(ops, INPUTS), simulate(slower, INPUTS))
    assert (found.verdict, found.index) == (DIFFERENT_CONFIG, at)
    assert "num_warps is None in the first and 8 in the second" in found.reason
    assert any("all values" in note for note in found.notes) != matters


@settings(max_examples=100, deadline=None)
@given(programs, places, st.integers(1, 3))
def test_a_call_is_missing_or_too_many(ops: list[Op], at: int, steps: int) -> None:
    """An effect that nobody reads: what was computed is the same without it."""
    at %= len(ops) + 1
    extra = Op("cpp_fused_extra77", (-1, -2), 150)
    more = [*ops[:at], extra, *ops[at:]]
    with_it, without = simulate(more, INPUTS, steps), simulate(ops, INPUTS, steps)
    found = diff(with_it, without)
    assert (found.verdict, found.index, found.kernel_name) == (
        MISSING_CALL,
        at,
        with_it.calls[at].kernel_name,
    )
    found = diff(without, with_it)
    assert (found.verdict, found.index, found.index_a) == (EXTRA_CALL, at, None)


def test_a_missing_call_is_the_cause_of_what_comes_later() -> None:
    """A buffer is filled, then filled again; without the second, its reader has other inputs."""
    fill, again = Op("cpp_fused_fill1", (-1, -1), 0), Op("cpp_fused_again2", (-2, -2), 0)
    rest = [Op("cpp_fused_use3", (0, -1), 1), Op("cpp_fused_use4", (1, 1), 2)]
    found = diff(simulate([fill, again, *rest], INPUTS), simulate([fill, *rest], INPUTS))
    assert (found.verdict, found.index) == (MISSING_CALL, 1)
    assert found.argument == "out_ptr0"
    assert any("shows at call 2" in note for note in found.notes)


@settings(max_examples=60, deadline=None)
@given(programs, places)
def test_a_write_that_nobody_owns_up_to(ops: list[Op], at: int) -> None:
    """One kernel, in the second run, also writes to the result of the first."""
    ops = [*ops, Op("cpp_fused_reader88", (0, 0), 88)]
    at = 1 + at % (len(ops) - 2)
    readers = [n for n, op in enumerate(ops) if 0 in op.reads and n > at]
    found = diff(simulate(ops, INPUTS), simulate(changed(ops, at, lambda op: replace(op, stray=0)), INPUTS))
    assert (found.verdict, found.index) == (INPUTS_DIFFER, readers[0])
    assert found.source is not None
    assert (found.source.kind, found.source.index_a) == ("unowned-write", 0)


def test_another_fusion_that_comes_to_the_same_is_no_value_difference() -> None:
    """One side keeps an intermediate result that the other does not; what they hand on is equal."""
    head, tail = Op("cpp_fused_head0", (-1, -2), 0), Op("cpp_fused_tail9", (2, 2), 3)
    apart = [Op("cpp_fused_mul5", (0, 0), 1), Op("cpp_fused_add5", (1, 1), 2, gives=77)]
    fused = Op("cpp_fused_addmul5", (0, 0), 2, gives=77)
    a = simulate([head, *apart, tail], INPUTS)
    found = diff(a, simulate([head, fused, tail], INPUTS))
    assert (found.verdict, found.index) == (DIFFERENT_KERNEL, 1)
    assert any("all values that can be compared agree" in note for note in found.notes)
    found = diff(a, simulate([head, fused, replace(tail, noise=1)], INPUTS))
    assert (found.verdict, found.index) == (NONDETERMINISTIC, 3)
    found = diff(a, simulate([head, replace(fused, gives=78), tail], INPUTS))
    assert (found.verdict, found.index) == (DIFFERENT_KERNEL, 1)
    assert not any("all values" in note for note in found.notes)


def test_graphs_are_told_apart_from_the_number_in_a_name() -> None:
    ops = chain(6, [0] * 12)
    shifted = [Op("cpp_fused_first99", (-1, -1), 100), *ops]
    found = diff(simulate(ops, INPUTS), simulate(shifted, INPUTS))  # every kernel's number is one more
    assert (found.verdict, found.index) == (EXTRA_CALL, 0)
    assert found.compared.pairs == 6


@settings(max_examples=25, deadline=None)
@given(programs, places)
def test_on_disk_as_in_memory(tmp_path_factory: pytest.TempPathFactory, ops: list[Op], at: int) -> None:
    at %= len(ops)
    folder = tmp_path_factory.mktemp("runs")
    a, b = simulate(ops, INPUTS, 2), simulate(changed(ops, at, lambda op: replace(op, noise=1)), INPUTS, 2)
    stored = [kernelscope.load(run.save(folder / name)) for run, name in ((a, "a"), (b, "b"))]
    live, read, mixed = diff(a, b), diff(*stored), diff(a, stored[1])
    assert live.to_json()["divergence"] == read.to_json()["divergence"] == mixed.to_json()["divergence"]


# -- bad input -------------------------------------------------------------------------------------------


def test_a_run_with_itself(tmp_path: Path) -> None:
    run = simulate(chain(3, [0] * 6), INPUTS)
    with pytest.raises(RunError, match=r"compared with itself.*record the program again"):
        diff(run, run)
    path = run.save(tmp_path / "run")
    with pytest.raises(RunError, match=r"compared with itself"):
        diff(path, run)


def test_an_empty_run() -> None:
    with pytest.raises(RunError, match=r"the second run is empty.*--ops all"):
        diff(simulate(chain(3, [0] * 6), INPUTS), simulate([], INPUTS))


def test_a_run_without_hashes() -> None:
    run, bare = simulate(chain(3, [0] * 6), INPUTS), simulate(chain(3, [0] * 6), INPUTS)
    for call in bare.records_of_calls:
        call.pre = call.post = None
    with pytest.raises(RunError, match=r"the second run has no hashes.*--values hash"):
        diff(run, bare)


def test_another_program() -> None:
    other = simulate([Op("other_thing7", (-1, -1), 0), Op("other_thing8", (0, 0), 1)], INPUTS)
    for call in other.records_of_calls:
        call.site = replace(call.site, origin=())
    with pytest.raises(RunError, match=r"different programs: 0 of 2 calls.*two runs of one program"):
        diff(simulate(chain(3, [0] * 6), INPUTS), other)


def test_other_kinds_of_hashes() -> None:
    a, b = simulate(chain(2, [0] * 4), INPUTS), simulate(chain(2, [0] * 4), INPUTS)
    hashes = b.calls[0].recorded.fingerprinter
    hashes.values = [float(v) for v in hashes.values]
    with pytest.raises(RunError, match=r"different kinds of hashes"):
        diff(a, b)


def test_nan_equals_nan_and_lost_hashes_say_nothing() -> None:
    runs = [simulate(chain(3, [0] * 6), INPUTS) for _ in range(2)]
    for run in runs:
        hashes = run.calls[0].recorded.fingerprinter
        hashes.values = [float("nan") if v == 11 else v for v in hashes.values]
    assert not diff(*runs)
    slots = runs[1].records_of_calls[1].post
    assert slots is not None
    runs[1].calls[0].recorded.fingerprinter.values[slots[2]] = None
    assert not diff(*runs)
