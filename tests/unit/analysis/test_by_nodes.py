"""Kernels that compute the same nodes stand side by side, whatever was fused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.analysis.alignment.by_nodes import Nodes, Part, cut


def kernels(length: int, ends: set[int]) -> list[Nodes | None]:
    """Nodes 0, 1, … in kernels that end before these."""
    bounds = [0, *sorted(e for e in ends if 0 < e < length), length]
    return [frozenset(range(a, b)) for a, b in itertools.pairwise(bounds)]


@given(st.integers(2, 30), st.sets(st.integers(1, 29)), st.sets(st.integers(1, 29)))
def test_they_are_cut_where_both_end_a_kernel(length: int, a: set[int], b: set[int]) -> None:
    of_a, of_b = kernels(length, a), kernels(length, b)
    parts = cut(of_a, of_b)
    common = sorted(e for e in a & b if e < length)
    if not common:
        assert parts is None
        return
    assert parts is not None
    assert [max(of_a[k - 1] or ()) + 1 for _, k, _, _ in parts] == [*common, length]  # type: ignore[type-var]
    assert [max(of_b[m - 1] or ()) + 1 for _, _, _, m in parts] == [*common, length]  # type: ignore[type-var]
    assert covers(parts, len(of_a), len(of_b))


@given(st.lists(st.frozensets(st.integers(0, 9), min_size=1)), st.lists(st.frozensets(st.integers(0, 9))))
def test_nothing_is_lost(a: list[Nodes], b: list[Nodes]) -> None:
    parts = cut(a, b)
    if parts is not None:
        assert covers(parts, len(a), len(b))
        for i, k, j, m in parts[:-1]:
            assert frozenset().union(*a[i:k]) == frozenset().union(*b[j:m])


def covers(parts: list[Part], length_a: int, length_b: int) -> bool:
    ends = [(k, m) for _, k, _, m in parts]
    return [(i, j) for i, _, j, _ in parts] == [(0, 0), *ends[:-1]] and ends[-1] == (length_a, length_b)


def node(name: str, target: str, traced: str) -> tuple[object, ...]:
    return (("0/0", "forward"), name, target, (traced,))


def test_another_torch_takes_operators_apart_in_another_way() -> None:
    softmax = [node(n, n, "softmax") for n in ("amax", "sub", "exp", "sum", "div")]
    relu, sine = node("relu", "relu", "relu"), node("sin", "sin", "sin")
    apart = [frozenset({sine}), frozenset(softmax[:2]), frozenset(softmax[2:]), frozenset({relu})]
    whole = [frozenset({sine}), frozenset({node("online", "online", "softmax")}), frozenset({relu})]
    assert cut(apart, whole) == [(0, 1, 0, 1), (1, 3, 1, 2), (3, 4, 2, 3)]


@pytest.mark.parametrize("unknown", [([None], [frozenset({1})]), ([frozenset({1})], [])])
def test_where_nodes_are_not_known(unknown: tuple[list[Nodes | None], list[Nodes | None]]) -> None:
    assert cut(*unknown) is None
