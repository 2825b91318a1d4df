"""Work that runs on one thread in one run and on another in the other: work of pools, callbacks, requests."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .by_nodes import Part
from .identity import EXACT
from .sequences import Codes
from .tiers import Found

_MOST_CANDIDATES = 16  # calls with the same values that are tried for one call
_MOST_COMPARED = 64  # stretches of each run that are compared one with another
_FIRST_LOOK = 64  # calls

Stretch = tuple[int, int]
MayMove = Callable[[int, int], bool]  # whether the calls at these places may belong together


@dataclass(frozen=True)
class Rest:
    """What remains of a part when work that moved is taken out."""

    a: list[Stretch]
    b: list[Stretch]


def moved(
    values: tuple[Codes, Codes], parts: list[Part], may_move: MayMove
) -> tuple[list[Found], list[Rest]]:
    """Stretches of calls with the same values, wherever they are; the longest that begins at each call."""
    search = _Search(values, parts, may_move)
    for a0, a1, _, _ in parts:
        search.look(a0, a1)
    rests = [
        Rest(_stretches(search.taken[0], a0, a1), _stretches(search.taken[1], b0, b1))
        for a0, a1, b0, b1 in parts
    ]
    return search.found, rests


class _Search:
    def __init__(self, values: tuple[Codes, Codes], parts: list[Part], may_move: MayMove) -> None:
        self._a, self._b = values
        self._may_move = may_move
        self.found: list[Found] = []
        self.taken = np.zeros(len(self._a), bool), np.zeros(len(self._b), bool)
        stretches = [(b0, b1) for _, _, b0, b1 in parts if b0 < b1]
        places = np.concatenate([np.arange(*stretch) for stretch in stretches])
        self._ends = np.repeat([b1 for _, b1 in stretches], [b1 - b0 for b0, b1 in stretches])
        order = np.argsort(self._b[places], kind="stable")
        self._places, self._ends = places[order], self._ends[order]
        self._keys = self._b[self._places]

    def look(self, begin: int, end: int) -> None:
        known = np.flatnonzero(np.isin(self._a[begin:end], self._keys)) + begin
        at = begin
        for place in known.tolist():
            if place < at:
                continue
            length, other = max(
                ((self._common(place, end, b, b_end), b) for b, b_end in self._candidates(place)),
                key=lambda found: (found[0], -found[1]),
                default=(0, -1),
            )
            if length:
                self.found.append((place, other, length, EXACT))
                self.taken[0][place : place + length] = True
                self.taken[1][other : other + length] = True
                at = place + length

    def _candidates(self, place: int) -> list[Stretch]:
        first = np.searchsorted(self._keys, self._a[place])
        last = np.searchsorted(self._keys, self._a[place], side="right")
        places, ends = self._places[first:last], self._ends[first:last]
        free = ~self.taken[1][places]
        found = zip(places[free].tolist(), ends[free].tolist(), strict=True)
        may_move = ((b, end) for b, end in found if self._may_move(place, b))
        return list(itertools.islice(may_move, _MOST_CANDIDATES))

    def _common(self, a: int, a_end: int, b: int, b_end: int) -> int:
        """How many calls from here on have the same values and are free."""
        most = min(a_end - a, b_end - b)
        for size in (min(_FIRST_LOOK, most), most):
            other = self._a[a : a + size] != self._b[b : b + size]
            stops = np.flatnonzero(other | self.taken[1][b : b + size])
            if len(stops):
                return int(stops[0])
        return most


def _stretches(taken: NDArray[np.bool_], begin: int, end: int) -> list[Stretch]:
    """What is not taken, between these places."""
    free = np.r_[False, ~taken[begin:end], False]
    edges = np.flatnonzero(free[1:] != free[:-1]) + begin
    return list(zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True))


def paired_by_neighbours(
    found: list[Found],
    rests: list[Rest],
    is_first: Callable[[int, int], bool],
    kernels: tuple[Codes, Codes],
) -> list[Part]:
    """What remains, beside what remains next to the partners of the calls before it, or after it."""
    partner = np.full(len(kernels[0]) + 1, -1)
    for at_a, at_b, count, _ in found:
        partner[at_a : at_a + count] = np.arange(at_b, at_b + count)
    begins = {stretch[0]: stretch for rest in rests for stretch in rest.b}
    ends = {stretch[1]: stretch for rest in rests for stretch in rest.b}

    def follows(begin: int) -> Stretch | None:
        before = -1 if is_first(0, begin) else int(partner[begin - 1])
        return None if before < 0 or is_first(1, before + 1) else begins.get(before + 1)

    def leads(end: int) -> Stretch | None:
        after = -1 if is_first(0, end) else int(partner[end])
        return None if after < 0 or is_first(1, after) else ends.get(after)

    candidates = {
        (begin, end): [b for b in dict.fromkeys((follows(begin), leads(end))) if b is not None]
        for rest in rests
        for begin, end in rest.a
    }
    together = _one_to_one(candidates, kernels)
    used = set(together.values())
    parts: list[Part] = []
    for a, b in together.items():
        common = _common_end(kernels, a, b) if b != follows(a[0]) else 0
        middle_a, middle_b = a[1] - common, b[1] - common
        parts += [(a[0], middle_a, b[0], middle_b), (middle_a, a[1], middle_b, b[1])]
    for rest in rests:
        of_a = [stretch for stretch in rest.a if stretch not in together]
        parts += unpaired(Rest(of_a, [stretch for stretch in rest.b if stretch not in used]))
    return [part for part in parts if part[0] < part[1] or part[2] < part[3]]


def _one_to_one(
    candidates: dict[Stretch, list[Stretch]], kernels: tuple[Codes, Codes]
) -> dict[Stretch, Stretch]:
    """Those with the same kernels first; then those with one candidate, because others can do without it."""
    are_same = {
        (a, b): np.array_equal(kernels[0][slice(*a)], kernels[1][slice(*b)])
        for a, others in candidates.items()
        for b in others
    }
    of_a: dict[Stretch, Stretch] = {}
    used: set[Stretch] = set()
    for a, b in sorted(are_same, key=lambda pair: (not are_same[pair], len(candidates[pair[0]]))):
        if a not in of_a and b not in used:
            of_a[a] = b
            used.add(b)
    return of_a


def _common_end(kernels: tuple[Codes, Codes], a: Stretch, b: Stretch) -> int:
    """How many calls before the ends of both stretches have the same kernels."""
    most = min(a[1] - a[0], b[1] - b[0])
    other = np.flatnonzero(kernels[0][a[1] - most : a[1]] != kernels[1][b[1] - most : b[1]])
    return most - int(other[-1]) - 1 if len(other) else most


def unpaired(rest: Rest) -> list[Part]:
    """The first stretch of one run beside the first of the other, and so on."""
    both = min(len(rest.a), len(rest.b))
    together = [(*a, *b) for a, b in zip(rest.a[:both], rest.b[:both], strict=True)]
    return [*together, *((*a, 0, 0) for a in rest.a[both:]), *((0, 0, *b) for b in rest.b[both:])]


def both_remain(parts: list[Part]) -> bool:
    return any(a0 < a1 for a0, a1, _, _ in parts) and any(b0 < b1 for *_, b0, b1 in parts)


def paired_by_kernels(kernels: tuple[Codes, Codes], parts: list[Part], may_move: MayMove) -> list[Part]:
    """Parts that only one run has, beside parts that only the other has, if most kernels are the same."""
    only_a = [part for part in parts if part[2] == part[3]]
    only_b = [part for part in parts if part[0] == part[1]]
    counts_a = [Counter(kernels[0][a0:a1].tolist()) for a0, a1, _, _ in only_a[:_MOST_COMPARED]]
    counts_b = [Counter(kernels[1][b0:b1].tolist()) for _, _, b0, b1 in only_b[:_MOST_COMPARED]]
    common = {
        (i, j): (a & b).total()
        for i, a in enumerate(counts_a)
        for j, b in enumerate(counts_b)
        if may_move(only_a[i][0], only_b[j][2])
    }
    together: dict[int, int] = {}
    for i, j in sorted(common, key=lambda pair: (-common[pair], pair)):
        enough = 2 * common[i, j] > max(counts_a[i].total(), counts_b[j].total())
        if enough and i not in together and j not in together.values():
            together[i] = j
    if not together:
        return parts
    gone = {only_a[i] for i in together} | {only_b[j] for j in together.values()}
    paired = [(*only_a[i][:2], *only_b[j][2:]) for i, j in together.items()]
    return [*(part for part in parts if part not in gone), *paired]
