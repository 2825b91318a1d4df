"""Calls that are alike, and may have been paired with one another's partners.

Threads of a pool run the same kernels, often on the same values. Where one result is wrong, its call has no
partner with the same values, and what is wrong may be paired with what is right.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from kernelscope.analysis.alignment.aligned_calls import Alignment
from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.alignment.identity import kernel_key
from kernelscope.events import Site
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import Ints, Words

from .pairs import compare
from .trace import Writer, writer_of

_FARTHEST = 100  # calls that are followed from writer to writer
_MOST_COMPARED = 4000  # calls, in all
_MOST_PAIRS = 2000  # that are looked at for one whose inputs are equal
_AT_ONCE = 64  # calls that are read from a run on disk


def writers_that_differ(
    alignment: Alignment, of_a: Reader, of_b: Reader, a: Writer | None, b: Writer | None
) -> tuple[int, int] | None:
    """Two calls that read the same and left other values: these writers, or what made their inputs differ."""
    for _ in range(_FARTHEST if alignment.threads else 0):
        if a is None or b is None or alignment.partner(a.position) == b.position:
            return None
        if alignment.is_same(a=a.position) and alignment.is_same(b=b.position):
            return None  # other calls were read, and none of them is wrong
        one, other = of_a.at(a.position), of_b.at(b.position)
        if not _are_alike(one, other):
            return None
        difference = compare(one, other)
        if not difference.inputs:
            return (a.position, b.position) if difference.outputs else None
        first = difference.inputs[0]
        if first.what != "values":
            return None
        a = writer_of(of_a, a.position, one, first.position)
        b = writer_of(of_b, b.position, other, first.position)
    return None


def are_others(alignment: Alignment, a: Writer | None, b: Writer | None) -> bool:
    """Whether tasks of a pool may be paired with others: these writers are not partners."""
    if not alignment.threads or a is None or b is None:
        return False
    return alignment.partner(a.position) != b.position


def with_equal_inputs(alignment: Alignment, pairs: Ints, of_a: Reader, of_b: Reader) -> int | None:
    """The first of these pairs that differs though its inputs do not: a cause, wherever it stands."""
    for pair in pairs[:_MOST_PAIRS].tolist():
        one, other = of_a.at(int(alignment.a[pair])), of_b.at(int(alignment.b[pair]))
        difference = compare(one, other) if one.arg_names == other.arg_names else None
        if difference and not difference.inputs:
            return int(pair)
    return None


class AlikeCalls:
    """Calls of the second run that differ from their partners; each stands for at most one of the first."""

    def __init__(self, alignment: Alignment, different: Ints, of_b: Reader) -> None:
        self._alignment, self._of_b = alignment, of_b
        self._positions = alignment.b[different]
        self._used: set[int] = set()
        self._compared = 0

    def use(self, position: int) -> None:
        self._used.add(position)

    def is_elsewhere(self, at: int, a: KernelCall) -> bool:
        """Whether a call that no other one stands for read the same and left the same as this one."""
        positions, lefts = self._by_left
        left = self._alignment.columns_a.left[at]
        first, last = np.searchsorted(lefts, left), np.searchsorted(lefts, left, side="right")
        for position in self._alike(at, a, positions[first:last]):
            other = self._of_b.at(position)
            if not compare(a, other):
                self.use(position)
                return True
        return False

    def that_read_the_same(self, at: int, a: KernelCall) -> KernelCall | None:
        """One that read what this one read and left other values."""
        positions = self._alike(at, a, self._positions) if self._compared < _MOST_COMPARED else []
        while positions and self._compared < _MOST_COMPARED:
            some, positions = positions[:_AT_ONCE], positions[_AT_ONCE:]
            self._compared += len(some)
            for other in self._of_b.many(some):
                difference = compare(a, other)
                if difference.outputs and not difference.inputs:
                    return other
        return None

    def _alike(self, at: int, a: KernelCall, positions: Ints) -> list[int]:
        """Those of these that run the same kernel, and may be this call of the first run."""
        if not self._alignment.threads or not len(positions):
            return []
        sites = self._sites.get(_code_of(a.site), [])
        here = np.isin(self._alignment.columns_b.site[positions], sites)
        return [
            position
            for position in positions[here].tolist()
            if position not in self._used and self._alignment.may_be_partners(at, position)
        ]

    @cached_property
    def _by_left(self) -> tuple[Ints, Words]:
        lefts = self._alignment.columns_b.left[self._positions]
        order = np.argsort(lefts, kind="stable")
        return self._positions[order], lefts[order]

    @cached_property
    def _sites(self) -> dict[Any, list[int]]:
        """Of the second run, by what they launch."""
        found: dict[Any, list[int]] = {}
        for number, site in self._alignment.columns_b.sites.items():
            found.setdefault(_code_of(site), []).append(number)
        return found


def _are_alike(a: KernelCall, b: KernelCall) -> bool:
    return bool(_code_of(a.site) == _code_of(b.site))


def _code_of(site: Site) -> Any:
    """The kernel with the names of its arguments: calls of one code can be compared."""
    return kernel_key(site.kernel), tuple(arg.name for arg in site.args)
