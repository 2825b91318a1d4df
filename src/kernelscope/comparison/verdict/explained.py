"""What the reference did where the other program made something wrong of what was right."""

from __future__ import annotations

from collections.abc import Container

from kernelscope.comparison.closeness import Closeness
from kernelscope.comparison.flow.calls_and_values import LEAF, Call, Flow
from kernelscope.comparison.reference import ReferenceRun
from kernelscope.comparison.result import ComparedCall, Difference

from .blame import Unmatched, with_parts
from .twins import Twins

_EMPTY = ("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like")


def shown(call: Call) -> ComparedCall:
    number = call.number if call.number >= 0 else call.index
    return ComparedCall(number, call.name, call.phase, call.origin)


class Explained:
    """What the reference did with the same inputs, or what it read in their place."""

    def __init__(
        self, run: ReferenceRun, twins: Twins, lost: set[int], here: Unmatched, there: Unmatched
    ) -> None:
        """`lost` are values of the reference without a counterpart."""
        self._run, self._twins, self._lost = run, twins, lost
        self._known = here.verified - (here.constants - here.matched)
        self._tables = _own_tables(run.flow, here, run.matching.flow, there)
        self._known_there = there.verified - (there.constants - there.matched - self._tables)
        self._steps = there.verified - there.constants
        self._other = run.matching.flow
        self._ours = {b: a for a, b in twins.pairs.items()}
        self._right = with_parts(self._other, self._ours) - twins.close.keys()

    def of(self, call: Call) -> Difference:
        close = next((self._twins.close[n] for n in call.writes if n in self._twins.close), None)
        ours = self._counterpart(call)
        if call.is_copy and len(call.reads) == 1:
            call = self._made_by(call.reads[0]) or call
        place = self._other_input(ours, call) if ours is not None else None
        if ours is None or place is None:
            missing = self._not_computed(ours, call) if ours is not None else None
            kind = "reads" if missing else "computes"
            reference, instead = shown(ours) if ours else None, shown(missing) if missing else None
            return Difference(kind, shown(call), reference, None, instead, *_numbers(close))
        a, b = place
        read, expected = self._made_by(b), self._first_before(self._run.flow, a, self._known)
        known = self._right | self._steps
        if b not in known and not known & self._run.matching.resolved(b):
            # Nothing of the reference stands for what it reads: that is where the two part.
            first = self._first_before(self._other, b, self._known_there)
            if first is not None:
                return Difference(
                    "computes", shown(first), shown(expected or ours), None, None, *_numbers(close)
                )
        return Difference(
            "reads", shown(call), shown(ours), shown(read) if read else None,
            shown(expected) if expected else None, *_numbers(close),
        )  # fmt: skip

    def _counterpart(self, call: Call) -> Call | None:
        """Its twin; or the first call of the reference that has no counterpart and shares most inputs."""
        flow = self._run.flow
        for number in call.writes:
            if number in self._ours and (made_by := flow.values[self._ours[number]].call) != LEAF:
                return flow.calls[made_by]
        read = self._resolved(call)
        inputs = {
            a for a, b in self._twins.pairs.items() if not read.isdisjoint(with_parts(self._other, [b]))
        }
        best, most = None, (0, 0, 0)
        for each in flow.calls:
            if self._lost.isdisjoint(each.writes) or not self._lost.isdisjoint(each.reads):
                continue
            shared = len(inputs & set(each.reads))
            score = shared, int(each.operator == call.operator), -each.index
            if score > most:
                best, most = each, score
        return best if best is not None else self._with_other_input(call)

    def _with_other_input(self, call: Call) -> Call | None:
        """The first call of the same operator that has lost one of its inputs, and has the others."""
        flow = self._run.flow
        made = {self._other.values[number].numel for number in call.writes}
        for each in flow.calls:
            if each.operator != call.operator or self._lost.isdisjoint(each.writes):
                continue
            same = [self._twins.is_same(a, b) for a, b in self._twins.places(each, call)]
            if any(same) and not all(same) and made == {flow.values[number].numel for number in each.writes}:
                return each
        return None

    def _resolved(self, call: Call) -> set[int]:
        return {n for number in call.reads for n in self._run.matching.resolved(number)}

    def _other_input(self, ours: Call, theirs: Call) -> tuple[int, int] | None:
        """The first place where one operator reads different values; the order of a kernel's says nothing."""
        if theirs.is_kernel or theirs.operator != ours.operator:
            return None
        for a, b in self._twins.places(ours, theirs):
            is_other = not self._twins.is_same(a, b) and b not in self._tables
            if is_other and self._run.flow.values[a].call != LEAF:
                return a, b
        return None

    def _not_computed(self, ours: Call, theirs: Call) -> Call | None:
        """Where they read in other ways: what led to an input that the other program does not have."""
        lost = [n for n in ours.reads if n not in self._twins.pairs and self._run.flow.values[n].call != LEAF]
        if not lost or self._twins.places(ours, theirs):
            return None
        return self._first_before(self._run.flow, lost[0], self._known)

    def _made_by(self, number: int) -> Call | None:
        """The call that made a value, or what it is a copy of."""
        value = self._other.values[number]
        while len(value.sources) == 1:
            value = self._other.values[value.sources[0]]
        return self._other.calls[value.call] if value.call != LEAF else None

    @staticmethod
    def _first_before(flow: Flow, number: int, known: Container[int]) -> Call | None:
        """Of the calls without a counterpart that led to this value: the first."""
        found: Call | None = None
        wanted = {number}
        for call in reversed(flow.calls[: flow.values[number].call + 1]):
            if not wanted.isdisjoint(call.writes):
                if found is None or call.operator not in _EMPTY:  # memory to begin with
                    found = call
                wanted.update(n for n in call.reads if n not in known)
        return found


def _own_tables(flow: Flow, here: Unmatched, other: Flow, there: Unmatched) -> set[int]:
    """Constants that the other program makes by operators with which the reference makes none: another way.

    Not those with which a gradient begins, such as a scale of the loss.
    """

    def made_by(which: Flow, numbers: set[int]) -> dict[int, str]:
        values = (which.values[number] for number in numbers)
        calls = {v.number: which.calls[v.call] for v in values if v.call != LEAF}
        return {number: call.operator for number, call in calls.items() if call.phase != "backward"}

    used = set(made_by(flow, here.constants - here.matched).values())
    mine = made_by(other, there.constants - there.matched)
    return {number for number, operator in mine.items() if operator not in used}


def _numbers(close: Closeness | None) -> tuple[float | None, float | None, float | None]:
    return (close.difference, close.noise, close.max_abs) if close is not None else (None, None, None)
