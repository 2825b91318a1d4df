"""The calls of two runs that belong together, and those that have no partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernelscope.store.columns import Columns, Ints

from .thread_names import ThreadNames
from .threads import Pair


@dataclass(frozen=True)
class Gap:
    """Calls of two runs between calls that match: positions in order, and one side may be empty.

    All calls of a side are of one thread. With one thread they are ranges.
    """

    a: Sequence[int]
    b: Sequence[int]
    before: int  # pairs that come before it
    ends: bool = False  # the run, or its thread, that has no call here has none later on either


@dataclass(frozen=True)
class Alignment:
    """Positions, not indices, in the columns of two runs. Pairs are in the order of the first run."""

    columns_a: Columns
    columns_b: Columns
    a: Ints  # a[n] is the same call as b[n]
    b: Ints
    tier: Ints  # how it was recognised: identity.EXACT, …
    gaps: tuple[Gap, ...]
    # Of runs with several threads: pairs of thread numbers, None where the other run has no such thread.
    threads: tuple[Pair, ...] = ()
    names: ThreadNames = field(default_factory=ThreadNames)
    moved: int = 0  # pairs whose calls ran on threads that are not the same
    mains: Pair | None = None  # of those threads, the main ones: the order of their calls is the program's

    def __len__(self) -> int:
        return len(self.a)

    def partner(self, position: int) -> int | None:
        """Of a call of the first run, the call of the second."""
        return partner_in(self.a, self.b, position)

    def partner_of_second(self, position: int) -> int | None:
        return partner_in(*self._by_second, position)

    @cached_property
    def _by_second(self) -> tuple[Ints, Ints]:
        if not self.threads:
            return self.b, self.a
        order = np.argsort(self.b, kind="stable")
        return self.b[order], self.a[order]

    def thread_of_a(self, index: int | None) -> int | None:
        """The thread that made the call with this index."""
        return _at(self.columns_a.index, self.columns_a.thread, index)

    def thread_of_b(self, index: int | None) -> int | None:
        return _at(self.columns_b.index, self.columns_b.thread, index)

    def gap_with(self, *, a: int | None = None, b: int | None = None) -> Gap | None:
        return next((gap for gap in self.gaps if a in gap.a or b in gap.b), None)

    def may_be_partners(self, position_a: int, position_b: int) -> bool:
        """Whether calls with the same values are the same call, wherever they stand."""
        threads = int(self.columns_a.thread[position_a]), int(self.columns_b.thread[position_b])
        return bool(self.threads) and threads != self.mains

    def is_same(self, *, a: int | None = None, b: int | None = None) -> bool:
        """Whether this call of the first run, or of the second, has a partner with the same values."""
        at_a = self.partner_of_second(b) if a is None and b is not None else a
        at_b = self.partner(a) if b is None and a is not None else b
        if at_a is None or at_b is None:
            return False
        return bool(self.columns_a.left[at_a] == self.columns_b.left[at_b])

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


def partner_in(mine: Ints, other: Ints, position: int) -> int | None:
    """What stands in the other list where this position is in the first, which is sorted."""
    at = int(np.searchsorted(mine, position))
    return int(other[at]) if at < len(mine) and mine[at] == position else None


def _at(indices: Ints, thread: Ints, index: int | None) -> int | None:
    return None if index is None else int(thread[np.searchsorted(indices, index)])
