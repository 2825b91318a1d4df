"""Values that have the same place in both programs although they differ.

Two calls of one operator on the same inputs make twins; so do the inputs of two calls of one operator whose
results are the same, place by place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

from kernelscope.comparison.closeness import Closeness
from kernelscope.comparison.differing_inputs import MARGIN
from kernelscope.comparison.flow.calls_and_values import LEAF, Call, Flow
from kernelscope.comparison.flow.lines import parts_alone
from kernelscope.comparison.reference import ReferenceRun

from .blame import constants, with_parts


class Twins:
    """By number of the reference's value: the other program's."""

    def __init__(self, run: ReferenceRun) -> None:
        self._run, self.other = run, run.matching.flow
        self.pairs: dict[int, int] = dict(run.matched)
        self._taken = set(run.matching.claimed)
        self.close: dict[int, Closeness] = {}  # by number of the other's value, of those that differ
        self.cancelled: dict[int, Closeness] = {}  # of those that differ: the calls that read them do too
        self.doubtful: set[int] = set()  # of the others: those at the limit
        self._by_operator: dict[str, list[Call]] = defaultdict(list)
        for call in self.other.calls:
            self._by_operator[call.operator].append(call)
        for _ in range(2):
            for call in run.flow.calls:
                self._same_inputs(call)
            for call in reversed(run.flow.calls):
                self._same_result(call)
        self._forgive_constants()
        self._forgive_harmless()

    def _forgive_constants(self) -> None:
        """A number that a gradient begins with, such as 1/n, is divided in other steps in the other program.

        Both have the same wherever it meets what was computed from data.
        """
        run = self._run
        placed = with_parts(self.other, run.matching.claimed)
        ours, theirs = constants(run.flow, set(run.matched)), constants(self.other, placed)
        for a, b in self.pairs.items():
            if b not in self.close or a not in ours or b not in theirs:
                continue
            here, there = _first_of_data(run.flow, a, ours), _first_of_data(self.other, b, theirs)
            if here and there and here <= run.matched.keys() and there <= placed:
                del self.close[b]

    def _forgive_harmless(self) -> None:
        """What differs, but not for the calls that read it: they compute the same in another way."""
        run, forgiven = self._run, set[int]()
        for value in reversed(run.flow.values):
            theirs = self.pairs.get(value.number)
            if (
                theirs in self.close
                and value.readers
                and all(
                    (value.number, reader) in run.harmless
                    or forgiven.issuperset(run.flow.calls[reader].writes)
                    for reader in value.readers
                )
            ):
                forgiven.add(value.number)
                self.cancelled[theirs] = self.close.pop(theirs)

    def forgive(self, right: Iterable[int]) -> None:
        """Values of the other program that are right although they have no counterpart, and their copies."""
        for number in [*self.close]:
            if not self._run.matching.resolved(number).isdisjoint(right):
                del self.close[number]

    def twin_of(self, call: Call) -> Call | None:
        """The other program's call in the place of this one of the reference."""
        found = [self.pairs[number] for number in call.writes if number in self.pairs]
        calls = [self.other.calls[n] for v in found if (n := self.other.values[v].call) != LEAF]
        return next((each for each in calls if each.operator == call.operator), None)

    def places(self, ours: Call, theirs: Call) -> list[tuple[int, int]]:
        """What they read, place by place; nothing where they do not read alike."""
        return (
            list(zip(ours.reads, theirs.reads, strict=True)) if len(ours.reads) == len(theirs.reads) else []
        )

    def is_same(self, ours: int, theirs: int) -> bool:
        """Whether a value of the reference stands for one of the other's, or one that it is a copy of."""
        return ours in self.pairs and self._is_copy(self.pairs[ours], theirs)

    def _is_copy(self, first: int, second: int) -> bool:
        return bool(self._run.matching.resolved(first) & self._run.matching.resolved(second))

    def _same_inputs(self, call: Call) -> None:
        if not call.reads or not any(number in self._run.unmatched for number in call.writes):
            return
        if all(number in self.pairs for number in call.writes):
            return
        for other in self._by_operator[call.operator]:
            places = self.places(call, other) if other.turn == call.turn else []
            is_same = places and all(self._is_as_it_lies(*each) for each in places)
            if is_same and self._join_results(call, other):
                return

    def _is_as_it_lies(self, ours: int, theirs: int) -> bool:
        """The same as a whole, and not the same numbers in another order."""
        if not self.is_same(ours, theirs) or self._is_part(ours, theirs):
            return False
        matching = self._run.matching
        kept, copy = (matching.kept.tensors[number].flatten() for number in (self.pairs[ours], theirs))
        if kept.numel() != copy.numel() or kept.dtype == copy.dtype:
            return torch.equal(kept, copy)
        eps = max(matching.flow.values[number].eps for number in (self.pairs[ours], theirs))
        return torch.allclose(kept.double(), copy.double(), rtol=2 * eps, atol=0.0, equal_nan=True)

    def _is_part(self, ours: int, theirs: int) -> bool:
        """Of a series, one of the values that it is made of, and not the whole."""
        return theirs in parts_alone(self.other, self.pairs[ours])

    def _join_results(self, call: Call, other: Call) -> bool:
        if len(call.writes) != len(other.writes):
            return False
        if any(self._differs_in_form(*each) for each in zip(call.writes, other.writes, strict=True)):
            return False  # such as a loss of each row, and their mean: other results of what both were given
        joined = [self._join(*each) for each in zip(call.writes, other.writes, strict=True)]
        return any(joined)

    def _same_result(self, call: Call) -> None:
        other, values = self.twin_of(call), self._run.flow.values
        if other is None:
            return
        places = self.places(call, other)
        if not any(self.pairs.get(number) in self.close for number in call.writes):
            if not any(number in self.pairs and values[number].eps for number in call.writes):
                return  # only a mask or a choice, such as that of a clamp: other inputs give the same
            # Sums in another order have the same result too: of what is right, one input may differ.
            places = [each for each in places if not self.is_same(*each)]
            places = places if len(places) == 1 else []
        for ours, theirs in places:
            self._join(ours, theirs)

    def _join(self, ours: int, theirs: int) -> bool:
        """Copies in another dtype are passed by, on the way back."""
        run = self._run
        if ours in self.pairs or ours not in run.unmatched:
            return False
        while theirs in self._taken or self._differs_in_form(ours, theirs):
            sources = self.other.values[theirs].sources
            if len(sources) != 1:
                return False
            theirs = sources[0]
        found = run.matching.compare_unmasked(self.other.values[theirs], run.unmatched[ours])
        self.pairs[ours] = theirs
        self._taken.add(theirs)
        if found.excess > MARGIN:
            self.close[theirs] = found
        elif not found.within:
            self.doubtful.add(theirs)
        return True

    def _differs_in_form(self, ours: int, theirs: int) -> bool:
        a, b = self._run.flow.values[ours], self.other.values[theirs]
        return a.numel != b.numel or bool(a.eps) != bool(b.eps)


def _first_of_data(flow: Flow, number: int, constant: set[int]) -> set[int]:
    """What is computed from this constant and from data, by way of constants alone."""
    found, todo = set[int](), [number]
    while todo:
        made = {n for reader in flow.values[todo.pop()].readers for n in flow.calls[reader].writes} - found
        found |= made
        todo += [n for n in made if n in constant]
    return found - constant


def with_doubtful(flow: Flow, wrong: set[int], doubtful: set[int]) -> set[int]:
    """What is at the limit is wrong if something wrong was computed from it."""
    found = set(wrong)
    for call in reversed(flow.calls):
        if not found.isdisjoint(call.writes):
            found.update(doubtful.intersection(call.reads))
    return found


def tainted(flow: Flow, wrong: set[int], matched: set[int]) -> set[int]:
    """What was computed from wrong values, as far as it has no counterpart."""
    found = set(wrong)
    for call in flow.calls:
        if not found.isdisjoint(call.reads):
            found.update(number for number in call.writes if number not in matched)
    return found
