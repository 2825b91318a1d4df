"""The longest common subsequence of two long sequences that are almost the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Block = tuple[int, int, int]  # where in the first, where in the second, how many

MOST_EDITS = 1000  # searched exactly; then the search settles for the best it has and goes on from there
_LATER_EDITS = 64
_OUTSIDE = -(1 << 60)
_STEP = 16  # compared one by one before numpy is asked


def matching_blocks(a: Codes, b: Codes) -> list[Block]:
    """Stretches that match, in order, such that as much as possible does.

    Exact where at most MOST_EDITS elements have no partner; beyond that, good.
    """
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    # What the other does not have cannot match.
    at_a, at_b = np.flatnonzero(np.isin(inner_a, inner_b)), np.flatnonzero(np.isin(inner_b, inner_a))
    pairs = _Search(inner_a[at_a], inner_b[at_b]).pairs() if len(at_a) else []
    blocks: list[Block] = [(0, 0, head)] if head else []
    for i, j, length in pairs:
        found_a, found_b = at_a[i : i + length] + head, at_b[j : j + length] + head
        blocks += _stretches(found_a, found_b)
    if tail:
        blocks.append((len(a) - tail, len(b) - tail, tail))
    return blocks


def gaps(blocks: list[Block], length_a: int, length_b: int) -> list[tuple[int, int, int, int]]:
    """What lies between the blocks: (from, to) in the first and (from, to) in the second."""
    found, i, j = [], 0, 0
    for at_a, at_b, length in [*blocks, (length_a, length_b, 0)]:
        if i < at_a or j < at_b:
            found.append((i, at_a, j, at_b))
        i, j = at_a + length, at_b + length
    return found


def _stretches(found_a: Codes, found_b: Codes) -> list[Block]:
    """Matches of filtered sequences, cut where something had been left out."""
    breaks = np.flatnonzero((np.diff(found_a) != 1) | (np.diff(found_b) != 1)) + 1
    starts, ends = [0, *breaks.tolist()], [*breaks.tolist(), len(found_a)]
    return [(int(found_a[s]), int(found_b[s]), e - s) for s, e in zip(starts, ends, strict=True)]


def _common(a: Codes, b: Codes) -> int:
    """How much of the beginning is the same."""
    shorter = min(len(a), len(b))
    different = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(different[0]) if len(different) else shorter


class _Search:
    """Myers' greedy search: the fewest edits first."""

    def __init__(self, a: Codes, b: Codes) -> None:
        self._a, self._b = a, b
        self._list_a, self._list_b = a.tolist(), b.tolist()

    def pairs(self) -> list[Block]:
        found: list[Block] = []
        i = j = 0
        most = MOST_EDITS
        while i < len(self._a) and j < len(self._b):
            blocks, i, j = self._advance(i, j, most)
            found += blocks
            most = _LATER_EDITS
        return found

    def _advance(self, i0: int, j0: int, most: int) -> tuple[list[Block], int, int]:
        """The best path from here, to the end or until so many edits are made."""
        wide, high = len(self._a) - i0, len(self._b) - j0
        reach, history = {1: 0}, []  # by diagonal: how far it was come; and that after each edit
        for edits in range(wide + high + 1):
            history.append(dict(reach))
            for k in range(-edits, edits + 1, 2):
                x = reach[k + 1] if _is_down(reach, k, edits) else reach[k - 1] + 1
                if x < 0 or x > wide or x - k > high:
                    reach[k] = _OUTSIDE
                    continue
                x += self._same(i0 + x, j0 + x - k)
                reach[k] = x
                if x >= wide and x - k >= high:
                    return _path(i0, j0, x, k, history), i0 + x, j0 + x - k
            if edits >= most:
                k = max(range(-edits, edits + 1, 2), key=lambda k: 2 * reach[k] - k)
                return _path(i0, j0, reach[k], k, history), i0 + reach[k], j0 + reach[k] - k
        raise AssertionError("a path with all elements edited always exists")

    def _same(self, i: int, j: int) -> int:
        """How far the sequences agree from here."""
        a, b, start = self._list_a, self._list_b, i
        end = min(len(a) - i, len(b) - j)
        quick = i + min(end, _STEP)
        while i < quick and a[i] == b[j]:
            i, j = i + 1, j + 1
        if i < quick or end <= _STEP:
            return i - start
        size = 4 * _STEP
        while i - start < end:
            stretch = min(size, end - (i - start))
            same = _common(self._a[i : i + stretch], self._b[j : j + stretch])
            i, j, size = i + same, j + same, size * 4
            if same < stretch:
                break
        return i - start


def _is_down(reach: dict[int, int], k: int, edits: int) -> bool:
    """Whether diagonal k is best reached by leaving out an element of the second sequence."""
    return k == -edits or (k != edits and reach.get(k - 1, _OUTSIDE) < reach.get(k + 1, _OUTSIDE))


def _path(i0: int, j0: int, x: int, k: int, history: list[dict[int, int]]) -> list[Block]:
    """The matches on the way to x on diagonal k."""
    blocks: list[Block] = []
    for edits in range(len(history) - 1, 0, -1):
        before = history[edits]
        down = _is_down(before, k, edits)
        previous = k + 1 if down else k - 1
        start = before[previous] if down else before[previous] + 1
        if x > start:
            blocks.append((i0 + start, j0 + start - k, x - start))
        x, k = before[previous], previous
    if x > 0:
        blocks.append((i0, j0, x))
    return blocks[::-1]
