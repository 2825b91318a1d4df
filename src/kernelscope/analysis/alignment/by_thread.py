"""Runs of several threads: each thread is aligned by itself, because their order differs from run to run.

Calls are put in another order first, thread after thread, so that calls of one thread stand together. Work
of a pool runs on whichever thread is free: what has no partner in its own thread is looked for in others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kernelscope.store.columns import Columns, Ints

from .aligned_calls import Alignment, Gap, partner_in
from .by_nodes import Part
from .identity import EXACT, SAME_KERNEL
from .moved_work import both_remain, moved, paired_by_kernels, paired_by_neighbours, unpaired
from .thread_names import ThreadNames
from .threads import Pair, Work, matched_threads, work_of
from .tiers import Found, Sides, matched, spelled

TwoColumns = tuple[Columns, Columns]


def align_threads(columns: TwoColumns, sides: Sides, mains: tuple[int, int]) -> Alignment:
    work_a, work_b = (
        work_of(each, codes[SAME_KERNEL], main)
        for each, codes, main in zip(columns, sides.codes, mains, strict=True)
    )
    threads = matched_threads(work_a, work_b)
    layout = _Layout.of(columns, threads)
    is_main_first = threads[0] == (work_a.main, work_b.main)
    found, parts = _Threads(layout, work_a, work_b, sides, is_main_first=is_main_first).aligned()
    aligned = _in_order_of_time(columns, layout, threads, found, parts)
    return replace(
        aligned, mains=threads[0] if is_main_first else None, names=ThreadNames.of(work_a, work_b, threads)
    )


@dataclass(frozen=True)
class _Layout:
    """Both runs, thread after thread, with the matched threads in the same order."""

    order: tuple[Ints, Ints]  # of each place, the position in the run
    ends: tuple[Ints, Ints]  # where each thread ends, and at the beginning 0

    @staticmethod
    def of(columns: TwoColumns, threads: list[Pair]) -> _Layout:
        orders, ends = [], []
        for which, each in enumerate(columns):
            rank = {pair[which]: n for n, pair in enumerate(threads)}
            distinct, places = np.unique(each.thread, return_inverse=True)
            ranks = np.array([rank[thread] for thread in distinct.tolist()], np.int64)[places]
            orders.append(np.argsort(ranks, kind="stable"))
            ends.append(np.r_[0, np.cumsum(np.bincount(ranks, minlength=len(threads)))])
        return _Layout((orders[0], orders[1]), (ends[0], ends[1]))

    def parts(self) -> list[Part]:
        of_a, of_b = (ends.tolist() for ends in self.ends)
        return list(zip(of_a[:-1], of_a[1:], of_b[:-1], of_b[1:], strict=True))

    def thread_at(self, which: int, place: int) -> int:
        return int(np.searchsorted(self.ends[which], place, side="right")) - 1

    def is_first(self, which: int, place: int) -> bool:
        """Whether a thread begins here, or all of them have ended."""
        at = int(np.searchsorted(self.ends[which], place))
        return at < len(self.ends[which]) and int(self.ends[which][at]) == place

    def is_last(self, which: int, position: int) -> bool:
        """Whether no call of its thread comes after the call at this position of the run."""
        place = int(np.flatnonzero(self.order[which] == position)[0])
        return self.is_first(which, place + 1)


class _Threads:
    """Aligns the threads, and then the work that runs on other threads in the other run."""

    def __init__(self, layout: _Layout, a: Work, b: Work, sides: Sides, *, is_main_first: bool) -> None:
        order_a, order_b = layout.order
        self._layout, self._is_main_first = layout, is_main_first
        self._values = a.values[order_a], b.values[order_b]
        self._kernels = a.kernels[order_a], b.kernels[order_b]
        self._sides = Sides(
            (sides.sites[0][order_a], sides.sites[1][order_b]),
            ([codes[order_a] for codes in sides.codes[0]], [codes[order_b] for codes in sides.codes[1]]),
            sides.nodes,
        )

    def aligned(self) -> tuple[list[Found], list[Part]]:
        """The order of the main thread is the program's; other threads may share work, so values decide."""
        parts = self._layout.parts()
        mains = parts[:1] if self._is_main_first else []
        found, still_open = self._sides.matched(mains)
        more, open_others = matched([(*self._values, EXACT)], parts[len(mains) :])
        found, still_open = found + more, still_open + open_others
        if both_remain(still_open):
            found, still_open = self._elsewhere(found, still_open)
        return found, self._sides.side_by_side(still_open)

    def _elsewhere(self, found: list[Found], still_open: list[Part]) -> tuple[list[Found], list[Part]]:
        elsewhere, rests = moved(self._values, still_open, self._may_move)
        found = found + elsewhere
        still_open = paired_by_neighbours(found, rests, self._layout.is_first, self._kernels)
        more, still_open = self._sides.matched(still_open)
        found += more
        more, still_open = self._sides.matched(
            paired_by_kernels(self._kernels, still_open, self._may_move_whole)
        )
        found += more
        if both_remain(still_open):
            more, rests = moved(self._kernels, still_open, self._may_move)
            found += [(a, b, count, SAME_KERNEL) for a, b, count, _ in more]
            still_open = [part for rest in rests for part in unpaired(rest)] if more else still_open
        return found, still_open

    def _may_move(self, place_a: int, place_b: int) -> bool:
        """Not within the main thread: another order there is another program."""
        at = self._layout.thread_at(0, place_a)
        return not (self._is_main_first and at == 0 == self._layout.thread_at(1, place_b))

    def _may_move_whole(self, place_a: int, place_b: int) -> bool:
        return self._layout.thread_at(0, place_a) != self._layout.thread_at(1, place_b)


def _in_order_of_time(
    columns: TwoColumns, layout: _Layout, threads: list[Pair], found: list[Found], parts: list[Part]
) -> Alignment:
    at_a, at_b, tier = spelled(found)
    (order_a, order_b), (ends_a, ends_b) = layout.order, layout.ends
    a, b = order_a[at_a], order_b[at_b]
    in_time = np.argsort(a, kind="stable")
    of_a, of_b = (np.searchsorted(e, at, side="right") for e, at in ((ends_a, at_a), (ends_b, at_b)))
    gaps = _Gaps(layout, a[in_time], b[in_time]).of(parts)
    elsewhere = int(np.count_nonzero(of_a != of_b))
    return Alignment(*columns, a[in_time], b[in_time], tier[in_time], gaps, tuple(threads), moved=elsewhere)


class _Gaps:
    """Parts of two layouts as gaps between pairs that are in the order of the first run."""

    def __init__(self, layout: _Layout, a: Ints, b: Ints) -> None:
        self._layout, self._a, self._b = layout, a, b
        self._by_b = np.argsort(b, kind="stable")
        self._sorted_b = b[self._by_b]

    def of(self, parts: list[Part]) -> tuple[Gap, ...]:
        order_a, order_b = self._layout.order
        found = [
            self._gap(part, order_a[part[0] : part[1]].tolist(), order_b[part[2] : part[3]].tolist())
            for part in parts
        ]
        return tuple(sorted(found, key=lambda gap: gap.before))

    def _gap(self, part: Part, a: list[int], b: list[int]) -> Gap:
        if a:
            before = int(np.searchsorted(self._a, a[0]))
            return Gap(tuple(a), tuple(b), before, ends=not b and self._ends(0, part, self._partner_of_a))
        at = int(np.searchsorted(self._sorted_b, b[0]))  # after the call that came before it in its own run
        before = int(self._by_b[at - 1]) + 1 if at else 0
        return Gap((), tuple(b), before, ends=self._ends(1, part, self._partner_of_b))

    def _ends(self, which: int, part: Part, partner: Callable[[int], int | None]) -> bool:
        """Whether the other run's thread had ended: its last call belongs to the one before these."""
        begin, end = part[2 * which], part[2 * which + 1]
        layout = self._layout
        if layout.is_first(which, begin) or not layout.is_first(which, end):
            return False
        before = partner(int(layout.order[which][begin - 1]))
        return before is not None and layout.is_last(1 - which, before)

    def _partner_of_a(self, position: int) -> int | None:
        return partner_in(self._a, self._b, position)

    def _partner_of_b(self, position: int) -> int | None:
        return partner_in(self._sorted_b, self._a[self._by_b], position)
