"""Matching of sequences, against the textbook's table."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.analysis.alignment import sequences
from kernelscope.analysis.alignment.sequences import gaps, matching_blocks

few = st.lists(st.integers(0, 3), max_size=14)


def longest(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, by trying it all."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def pairs(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    blocks = matching_blocks(np.array(a, np.int64), np.array(b, np.int64))
    return [(i + n, j + n) for i, j, length in blocks for n in range(length)]


def check(a: list[int], b: list[int], found: list[tuple[int, int]]) -> None:
    assert all(a[i] == b[j] for i, j in found)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in pairwise(found))


@settings(max_examples=600, deadline=None)
@given(few, few)
def test_as_long_as_the_longest(a: list[int], b: list[int]) -> None:
    found = pairs(a, b)
    check(a, b, found)
    assert len(found) == longest(a, b)


@settings(max_examples=300, deadline=None)
@given(few, few)
def test_gaps_and_blocks_make_up_the_whole(a: list[int], b: list[int]) -> None:
    blocks = matching_blocks(np.array(a, np.int64), np.array(b, np.int64))
    left = gaps(blocks, len(a), len(b))
    assert sum(i1 - i0 for i0, i1, _, _ in left) + sum(n for *_, n in blocks) == len(a)
    assert sum(j1 - j0 for _, _, j0, j1 in left) + sum(n for *_, n in blocks) == len(b)


@settings(max_examples=300, deadline=None)
@given(few, few)
def test_a_search_that_settles_is_still_right(a: list[int], b: list[int]) -> None:
    with patch.object(sequences, "MOST_EDITS", 2), patch.object(sequences, "_LATER_EDITS", 1):
        check(a, b, pairs(a, b))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=50, max_size=400), st.data())
def test_what_was_taken_out_is_what_is_missing(a: list[int], data: st.DataObject) -> None:
    """Distinct neighbours make it certain which ones are missing."""
    numbered = [n * 1000 + i for i, n in enumerate(a)]
    out = data.draw(st.sets(st.integers(0, len(a) - 1), max_size=8))
    kept = [n for i, n in enumerate(numbered) if i not in out]
    matched = {i for i, _ in pairs(numbered, kept)}
    assert set(range(len(a))) - matched == out


def test_many_edits_are_matched_well() -> None:
    rng = np.random.default_rng(0)
    a = np.tile(np.arange(50), 2000)
    b = a[rng.random(len(a)) > 0.03]  # 3,000 are gone
    blocks = matching_blocks(a, b)
    assert sum(n for *_, n in blocks) > 0.99 * len(b)
    assert all(np.array_equal(a[i : i + n], b[j : j + n]) for i, j, n in blocks)
