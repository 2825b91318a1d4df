"""Steps that only one of two programs takes at its end: of them nothing is computed that would differ."""

from __future__ import annotations

from collections.abc import Container

import torch

from kernelscope.comparison.absorbed import MARGIN
from kernelscope.comparison.flow.calls_and_values import LEAF, Flow
from kernelscope.comparison.reference import ReferenceRun

from .blame import Unmatched
from .twins import Twins

_Pair = tuple[int, int]  # of the reference, and of the other


class LastSteps:
    """Of what is written in place, and of what both programs return."""

    def __init__(self, run: ReferenceRun, twins: Twins, here: Unmatched, there: Unmatched) -> None:
        self._run, self._pairs = run, twins.pairs
        self._ours = {b: a for a, b in twins.pairs.items()}
        self._here, self._there = here, there
        self.added = self._added()  # numbers of the other's values, which the reference does not compute
        self.missing = self._missing()  # values that only the reference computes, and what the other has

    def _results(self) -> list[_Pair]:
        ours, theirs = self._run.flow.results, self._run.matching.flow.results
        pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ()
        return [(a, b) for a, b in pairs if a is not None and b is not None]

    def _added(self) -> set[int]:
        other, found = self._run.matching.flow, set[int]()
        written = _replaced(self._run.flow)
        for value in self._there.ends():
            before = _before(other, value.number, self._ours.keys()) if value.eps else None
            if before is None or not self._says_much(before) or self._ours[before] in written:
                continue
            if not self._is_as_before(value.number, before):
                found.add(value.number)
        for a, b in self._results():
            if a in self._pairs and self._is_new(self._there, other, b):
                found.add(b)
        return found

    def _missing(self) -> list[_Pair]:
        flow, other = self._run.flow, self._run.matching.flow
        written, found = _replaced(other), list[_Pair]()
        for value in self._here.ends():
            before = _before(flow, value.number, self._pairs.keys()) if value.eps else None
            if before is not None and self._says_much(self._pairs[before]):
                found.append((value.number, self._pairs[before]))
        found = [(a, b) for a, b in found if b not in written]
        found += [(a, b) for a, b in self._results() if b in self._ours and self._is_new(self._here, flow, a)]
        return [each for each in dict.fromkeys(found) if self._differs(*each)]

    def _is_as_before(self, number: int, before: int) -> bool:
        """An operator may say that it writes what it leaves as it is, such as gradients."""
        kept = self._run.matching.kept.tensors
        return torch.equal(kept[number].flatten(), kept[before].flatten())

    def _says_much(self, number: int) -> bool:
        return self._run.matching.says_much(number)

    @staticmethod
    def _is_new(unmatched: Unmatched, flow: Flow, number: int) -> bool:
        value = flow.values[number]
        return number not in unmatched.verified and value.call != LEAF and bool(value.eps)

    def _differs(self, ours: int, theirs: int) -> bool:
        expected, value = self._run.unmatched.get(ours), self._run.matching.flow.values[theirs]
        if expected is None:
            return False
        if expected.tensor.numel() != value.numel:
            return True  # a part of it
        found = self._run.matching.compare(value, expected)
        return found.excess > MARGIN


def _before(flow: Flow, number: int, wanted: Container[int]) -> int | None:
    """What was in its memory before, the last of those that have a counterpart."""
    todo, seen = list(flow.replaced.get(number, ())), set[int]()
    while todo:
        each = todo.pop(0)
        if each in seen:
            continue
        seen.add(each)
        if each in wanted:
            return each
        todo += flow.replaced.get(each, ())
    return None


def _replaced(flow: Flow) -> set[int]:
    return {number for before in flow.replaced.values() for number in before}
