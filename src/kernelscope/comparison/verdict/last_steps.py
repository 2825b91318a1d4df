"""Steps that only one of two programs takes at its end: of them nothing is computed that would differ."""

from __future__ import annotations

from collections.abc import Container

import torch

from kernelscope.comparison.differing_inputs import MARGIN
from kernelscope.comparison.flow.calls_and_values import LEAF, Flow
from kernelscope.comparison.flow.replaced_values import replaced_values
from kernelscope.comparison.matching import Expected
from kernelscope.comparison.reference import ReferenceRun

from .blame import Unmatched
from .constant_fills import lost_to_constants
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
        self.exchanged = self._exchanged()

    def _results(self) -> list[_Pair]:
        """At the same place; in a result of another form, one after the other."""
        ours, theirs = self._run.flow.results, self._run.matching.flow.results
        if len(ours) != len(theirs):
            return []
        places = [*ours] if ours.keys() == theirs.keys() else [*theirs]
        pairs = zip(ours.values(), (theirs[place] for place in places), strict=True)
        return [(a, b) for a, b in pairs if a is not None and b is not None]

    def _added(self) -> set[int]:
        other, found = self._run.matching.flow, set[int]()
        written = replaced_values(self._run.flow)
        for value in self._there.ends():
            before = _before(other, value.number, self._ours.keys()) if value.eps else None
            if before is None or not self._says_much(before) or self._ours[before] in written:
                continue
            if _is_reused(other, value.number):
                continue
            if not self._is_as_before(value.number, before):
                found.add(value.number)
        for _, filled, lost in lost_to_constants(other, self._there, self._run.flow, self._ours):
            if not self._is_as_before(filled, lost):
                found.add(filled)
        for a, b in self._results():
            if (a in self._pairs and self._is_new(self._there, other, b)) or self._is_another(a, b):
                found.add(b)
        return found

    def _is_another(self, ours: int, theirs: int) -> bool:
        """Both return a result, and the other program's is a constant, or has no counterpart, and differs."""
        other = self._run.matching.flow
        if ours in self._here.constants or not other.values[theirs].eps:
            return False
        is_lost = ours in self._run.unmatched and theirs not in self._ours
        return (is_lost or theirs in self._there.constants) and self._differ(ours, theirs)

    def _exchanged(self) -> list[_Pair]:
        """What the other program returns stands for another value of the reference."""
        return [
            (a, b) for a, b in self._results()
            if a in self._pairs and b in self._ours and self._pairs[a] != b and self._differ(a, b)
        ]  # fmt: skip

    def _differ(self, ours: int, theirs: int) -> bool:
        """By more than rounding explains."""
        matching, values = self._run.matching, self._run.matching.flow.values
        expected = self._run.unmatched.get(ours)
        if expected is None:
            tensor = matching.kept.tensors[self._pairs[ours]]
            expected = Expected(tensor, [tensor], 0.0, values[self._pairs[ours]].eps)
        if expected.tensor.numel() != values[theirs].numel:
            return True
        return matching.compare(values[theirs], expected).excess > MARGIN

    def _missing(self) -> list[_Pair]:
        flow, other = self._run.flow, self._run.matching.flow
        written, found = replaced_values(other), list[_Pair]()
        for value in self._here.ends():
            before = _before(flow, value.number, self._pairs.keys()) if value.eps else None
            if before is not None and self._says_much(self._pairs[before]):
                found.append((value.number, self._pairs[before]))
        found = [(a, b) for a, b in found if b not in written]
        found += [
            (filled, self._pairs[lost])
            for _, filled, lost in lost_to_constants(flow, self._here, other, self._pairs)
        ]
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
        if expected is None:  # it was found elsewhere, as a constant may be
            filled = self._pairs.get(ours)
            return filled is not None and not self._is_as_before(filled, theirs)
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


def _is_reused(flow: Flow, number: int) -> bool:
    """Whether generated code uses memory of its own again, and not what it was given: that is no result."""
    call = flow.calls[flow.values[number].call]
    if not call.is_kernel:
        return False
    todo, seen = list(flow.replaced.get(number, ())), set[int]()
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        made_by = flow.values[each].call
        if made_by == LEAF or flow.calls[made_by].kind == "op":
            return False
        if (flow.calls[made_by].phase, flow.calls[made_by].turn) != (call.phase, call.turn):
            return False
        todo += flow.replaced.get(each, ())
    return True
