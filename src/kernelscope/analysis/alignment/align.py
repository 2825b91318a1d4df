"""Which call of one run is which call of another, when something may be fused, missing or added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernelscope.model.run import Run
from kernelscope.store.columns import Columns, Ints, columns_of

from .by_nodes import Nodes, Part, cut
from .identity import SAME_LINE, Keys
from .sequences import Codes, gaps, matching_blocks

_MOST_BY_NODES = 100_000  # calls in one gap: sets are slow


@dataclass(frozen=True)
class Gap:
    """Calls of two runs between two that match: [first, last) of each, either of which may be empty."""

    a: range
    b: range
    before: int  # pairs that come before it


@dataclass(frozen=True)
class Alignment:
    """Positions, not indices, in the columns of two runs."""

    columns_a: Columns
    columns_b: Columns
    a: Ints  # a[n] is the same call as b[n]
    b: Ints
    tier: Ints  # how it was recognised: identity.EXACT, …
    gaps: tuple[Gap, ...]

    def __len__(self) -> int:
        return len(self.a)

    def partner(self, position: int) -> int | None:
        """Of a call of the first run, the call of the second."""
        return _partner(self.a, self.b, position)

    def partner_of_second(self, position: int) -> int | None:
        return _partner(self.b, self.a, position)

    def gap_with(self, *, a: int | None = None, b: int | None = None) -> Gap | None:
        return next((gap for gap in self.gaps if a in gap.a or b in gap.b), None)

    def different(self) -> Ints:
        """The pairs whose values, taken together, are not the same."""
        return np.flatnonzero(self.columns_a.left[self.a] != self.columns_b.left[self.b])

    def different_with_same_inputs(self) -> Ints:
        """Those of them that found the same values; needs columns with `found`."""
        found_a, found_b = self.columns_a.found, self.columns_b.found
        assert found_a is not None
        assert found_b is not None
        pairs = self.different()
        same: Ints = pairs[found_a[self.a[pairs]] == found_b[self.b[pairs]]]
        return same


def align(a: Run, b: Run, *, found: bool = False) -> Alignment:
    """By kernel within the same graph and step, then by FX nodes, by kernel alone, and by its name.

    What is left has other kernels; it is put side by side by FX nodes, where those are known, or else
    by the user's lines.
    """
    with ThreadPoolExecutor(2) as readers:
        columns_a, columns_b = readers.map(partial(columns_of, found=found), (a, b))
    keys = Keys()
    return align_codes(columns_a, columns_b, keys.codes(a, columns_a), keys.codes(b, columns_b), keys.nodes)


def align_codes(
    columns_a: Columns,
    columns_b: Columns,
    codes_a: list[Codes],
    codes_b: list[Codes],
    nodes: Sequence[Mapping[int, Nodes | None]] = ({}, {}),
) -> Alignment:
    found: list[tuple[int, int, int, int]] = []  # where in each, how many, tier
    open_gaps = [(0, len(columns_a), 0, len(columns_b))]
    for tier, (of_a, of_b) in enumerate(zip(codes_a[:SAME_LINE], codes_b[:SAME_LINE], strict=True)):
        remaining = []
        for a0, a1, b0, b1 in open_gaps:
            blocks = matching_blocks(of_a[a0:a1], of_b[b0:b1]) if a0 < a1 and b0 < b1 else []
            found += [(a0 + i, b0 + j, length, tier) for i, j, length in blocks]
            remaining += [(a0 + i, a0 + k, b0 + j, b0 + m) for i, k, j, m in gaps(blocks, a1 - a0, b1 - b0)]
        open_gaps = remaining
    found.sort()
    at_a = _spelled(found, 0)
    at_b = _spelled(found, 1)
    tiers = np.repeat(np.array([f[3] for f in found], np.int64), np.array([f[2] for f in found], np.int64))
    parts = [
        part
        for gap in open_gaps
        for part in _by_nodes(gap, columns_a, columns_b, nodes)
        or _by_line(gap, codes_a[SAME_LINE], codes_b[SAME_LINE])
    ]
    closed = tuple(
        Gap(range(a0, a1), range(b0, b1), int(np.searchsorted(at_a, a0))) for a0, a1, b0, b1 in parts
    )
    return Alignment(columns_a, columns_b, at_a, at_b, tiers, closed)


def _by_nodes(
    gap: Part, columns_a: Columns, columns_b: Columns, nodes: Sequence[Mapping[int, Nodes | None]]
) -> list[Part] | None:
    """Other kernels on both sides, cut so that those that compute the same nodes stand side by side."""
    a0, a1, b0, b1 = gap
    if a1 - a0 > _MOST_BY_NODES or b1 - b0 > _MOST_BY_NODES:
        return None
    of_a = [nodes[0].get(site) for site in columns_a.site[a0:a1].tolist()]
    of_b = [nodes[1].get(site) for site in columns_b.site[b0:b1].tolist()]
    found = cut(of_a, of_b)
    return None if found is None else [(a0 + i, a0 + k, b0 + j, b0 + m) for i, k, j, m in found]


def _by_line(gap: Part, of_a: Codes, of_b: Codes) -> list[Part]:
    """Other kernels on both sides, cut so that those of one line of the user's stand side by side."""
    a0, a1, b0, b1 = gap
    if a0 == a1 or b0 == b1:
        return [gap]
    starts_a, lines_a = _groups(of_a[a0:a1])
    starts_b, lines_b = _groups(of_b[b0:b1])
    blocks = [(i + n, j + n, 1) for i, j, length in matching_blocks(lines_a, lines_b) for n in range(length)]
    parts = [(i, i + 1, j, j + 1) for i, j, _ in blocks]
    parts = _with_what_leads_to_them(sorted([*parts, *gaps(blocks, len(lines_a), len(lines_b))]))
    return [
        (a0 + int(starts_a[i]), a0 + int(starts_a[k]), b0 + int(starts_b[j]), b0 + int(starts_b[m]))
        for i, k, j, m in parts
    ]


def _with_what_leads_to_them(parts: list[Part]) -> list[Part]:
    """Calls that only one run has, together with the line that comes next: there they are fused into it."""
    found: list[Part] = []
    for i, k, j, m in parts:
        if found and i < k and j < m:
            a0, a1, b0, b1 = found[-1]
            if a0 == a1 or b0 == b1:
                found[-1] = a0, k, b0, m
                continue
        found.append((i, k, j, m))
    return found


def _groups(codes: Codes) -> tuple[Codes, Codes]:
    """Where stretches of equal codes begin, with the end of the last; and their codes."""
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    return np.r_[starts, len(codes)], codes[starts]


def _spelled(blocks: list[tuple[int, int, int, int]], which: int) -> Ints:
    parts = [np.arange(block[which], block[which] + block[2]) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _partner(mine: Ints, other: Ints, position: int) -> int | None:
    at = int(np.searchsorted(mine, position))
    return int(other[at]) if at < len(mine) and mine[at] == position else None
