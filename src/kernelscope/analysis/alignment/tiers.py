"""Two sequences of calls, aligned way by way to recognise them; what is left is put side by side by place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelscope.store.columns import Ints

from .by_nodes import Nodes, Part, cut
from .identity import SAME_LINE
from .sequences import Codes, gaps, matching_blocks

_MOST_BY_NODES = 100_000  # calls in one gap: sets are slow

Found = tuple[int, int, int, int]  # where in each, how many, tier
Tier = tuple[Codes, Codes, int]  # numbers for the calls of both, and what equal ones mean


@dataclass(frozen=True)
class Sides:
    """The calls of two runs: of each its site, and a number for each tier."""

    sites: tuple[Ints, Ints]
    codes: tuple[list[Codes], list[Codes]]
    nodes: Sequence[Mapping[int, Nodes | None]]  # of each run, by site

    def matched(self, parts: list[Part]) -> tuple[list[Found], list[Part]]:
        """What matches within these parts, by the first tier and then the next; and what does not."""
        of_a, of_b = self.codes
        return matched([(of_a[tier], of_b[tier], tier) for tier in range(SAME_LINE)], parts)

    def side_by_side(self, parts: list[Part]) -> list[Part]:
        """What does not match, cut by FX nodes or else by the user's lines."""
        return [piece for part in parts for piece in self._by_nodes(part) or self._by_line(part)]

    def _by_nodes(self, gap: Part) -> list[Part] | None:
        """Other kernels on both sides, cut so that those that compute the same nodes stand side by side."""
        a0, a1, b0, b1 = gap
        if a1 - a0 > _MOST_BY_NODES or b1 - b0 > _MOST_BY_NODES:
            return None
        of_a = [self.nodes[0].get(site) for site in self.sites[0][a0:a1].tolist()]
        of_b = [self.nodes[1].get(site) for site in self.sites[1][b0:b1].tolist()]
        found = cut(of_a, of_b)
        return None if found is None else [(a0 + i, a0 + k, b0 + j, b0 + m) for i, k, j, m in found]

    def _by_line(self, gap: Part) -> list[Part]:
        """Other kernels on both sides, cut so that those of one line of the user's stand side by side."""
        a0, a1, b0, b1 = gap
        if a0 == a1 or b0 == b1:
            return [gap]
        starts_a, lines_a = _groups(self.codes[0][SAME_LINE][a0:a1])
        starts_b, lines_b = _groups(self.codes[1][SAME_LINE][b0:b1])
        blocks = [
            (i + n, j + n, 1) for i, j, length in matching_blocks(lines_a, lines_b) for n in range(length)
        ]
        parts = [(i, i + 1, j, j + 1) for i, j, _ in blocks]
        parts = _with_what_leads_to_them(sorted([*parts, *gaps(blocks, len(lines_a), len(lines_b))]))
        return [
            (a0 + int(starts_a[i]), a0 + int(starts_a[k]), b0 + int(starts_b[j]), b0 + int(starts_b[m]))
            for i, k, j, m in parts
        ]


def matched(tiers: Sequence[Tier], parts: list[Part]) -> tuple[list[Found], list[Part]]:
    """What matches within these parts, by the first tier and then the next; and what does not."""
    found: list[Found] = []
    open_gaps = parts
    for of_a, of_b, tier in tiers:
        remaining = []
        for a0, a1, b0, b1 in open_gaps:
            blocks = matching_blocks(of_a[a0:a1], of_b[b0:b1]) if a0 < a1 and b0 < b1 else []
            found += [(a0 + i, b0 + j, length, tier) for i, j, length in blocks]
            remaining += [(a0 + i, a0 + k, b0 + j, b0 + m) for i, k, j, m in gaps(blocks, a1 - a0, b1 - b0)]
        open_gaps = remaining
    return found, open_gaps


def spelled(found: list[Found]) -> tuple[Ints, Ints, Ints]:
    """Of each pair, where it is in each sequence and its tier, in the order of the first."""
    found = sorted(found)
    lengths = np.array([f[2] for f in found], np.int64)
    tiers = np.repeat(np.array([f[3] for f in found], np.int64), lengths)
    return _spelled(found, 0), _spelled(found, 1), tiers


def _spelled(blocks: list[Found], which: int) -> Ints:
    parts = [np.arange(block[which], block[which] + block[2]) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


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
