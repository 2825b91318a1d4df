"""Where the other program leaves the reference: the first call whose result has no counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from kernelscope.comparison.flow.calls_and_values import LEAF, SERIES, Call, Flow, Value
from kernelscope.comparison.flow.lines import of_one_line
from kernelscope.comparison.layouts import are_joined

_MOST_STEPS = 64
_FEW = 16  # numbers: a place, not data
_JOINS = ("cat", "stack", "_unsafe_view")
_PLACES = ("index_copy", "slice_scatter", "select_scatter", "index_put")  # rows in a larger memory


class Unmatched:
    """Values of one program that stand for none of the other's."""

    def __init__(self, flow: Flow, placed: set[int], steps: set[int]) -> None:
        """`placed` have a counterpart; `steps` lead to values that both have, in ways of their own."""
        self.flow, self.matched = flow, placed
        self.constants = constants(flow, placed)
        self.verified = set(steps)
        for value in flow.values:
            if value.number in placed or self._is_plain(value) or self._is_read_well(value):
                self.verified.add(value.number)

    def _is_plain(self, value: Value) -> bool:
        """Made of nothing, such as zeros or a mask; or copied or joined from what is right."""
        if value.sources:
            return all(number in self.verified for number in value.sources)
        if value.call != LEAF and (call := self.flow.calls[value.call]).operator in (*_JOINS, *_PLACES):
            if call.operator in _PLACES and self._is_end(value):
                return False  # a result: where its rows are is all that there is to judge
            return all(number in self.verified for number in call.reads)
        return value.number in self.constants

    def _is_read_well(self, value: Value) -> bool:
        """Most calls that read it have a result with a counterpart."""
        well = 0
        for reader in value.readers:
            made = [v for n in self.flow.calls[reader].writes if (v := self.flow.values[n]).eps]
            if made:
                well += 1 if any(v.number in self.matched for v in made) else -1
        return well > 0

    def ends(self) -> list[Value]:
        """Of which nothing else was computed."""
        return [v for v in self.all_ends() if v.number not in self.verified]

    def all_ends(self) -> list[Value]:
        """Also those with a counterpart."""
        return [v for v in self.flow.values if v.call != LEAF and self._is_end(v)]

    def _is_end(self, value: Value) -> bool:
        """Also numbers of which only a choice was made, such as the next token: it says little of them."""
        made = [self.flow.values[n] for reader in value.readers for n in self.flow.calls[reader].writes]
        return not any(v.eps for v in made) if value.eps else not made

    def leading_to(self, ends: Iterable[int]) -> set[int]:
        """Values without a counterpart from which these were computed, and they themselves."""
        found = set(ends)
        for call in reversed(self.flow.calls):
            if not found.isdisjoint(call.writes):
                found.update(
                    n for n in call.reads if n not in self.verified and self.flow.values[n].call != LEAF
                )
        return found

    def first_calls(self, bad: set[int]) -> list[Call]:
        """Those that made something bad of what was not."""
        return [
            call for call in self.flow.calls if not bad.isdisjoint(call.writes) and bad.isdisjoint(call.reads)
        ]


def constants(flow: Flow, placed: set[int]) -> set[int]:
    """Computed from nothing that both were given, and not drawn: from numbers of its own, such as a place."""
    found = {
        v.number for v in flow.values
        if v.call == LEAF and not v.eps and v.numel <= _FEW and v.number not in placed
    }  # fmt: skip
    for call in flow.calls:
        if not call.is_draw and found.issuperset(_used(flow, call)):
            found.update(call.writes)
    return found


def _used(flow: Flow, call: Call) -> set[int]:
    """What it reads, but for memory that a copy overwrites."""
    if not call.name.startswith("aten.copy_."):
        return set(call.reads)
    return set(call.reads).difference(*(flow.replaced.get(number, ()) for number in call.writes))


def own_steps(ours: Flow, theirs: Flow, right: dict[int, int]) -> tuple[set[int], set[int]]:
    """What only one of them computes on the way from values that both have to another that both have.

    Where both take steps of the same form, these may be counterparts that differ: they are left out.
    """
    right_there = with_parts(theirs, right.values())
    here, there = set[int](), set[int]()
    for a, b in right.items():
        before, before_there = _steps_to(ours, a, right), _steps_to(theirs, b, right_there)
        if not before and _makes_several(theirs, b):
            continue  # what the kernel reads may be for its other results
        forms = {_form(ours.values[n]) for n in before}
        differ = not _is_series(theirs, b) and forms.isdisjoint(_form(theirs.values[n]) for n in before_there)
        if differ or not before or not before_there:
            here |= before
            there |= before_there
    return here, there


def _makes_several(flow: Flow, number: int) -> bool:
    call = flow.values[number].call
    return call != LEAF and flow.calls[call].is_kernel and len(flow.calls[call].writes) > 1


def with_parts(flow: Flow, numbers: Iterable[int]) -> set[int]:
    """Of a series, also the values that it is made of."""
    found = set(numbers)
    return found.union(*(flow.values[n].sources for n in found if _is_series(flow, n)))


def _is_series(flow: Flow, number: int) -> bool:
    call = flow.values[number].call
    return call != LEAF and flow.calls[call].kind == SERIES


def _steps_to(flow: Flow, number: int, right: Container[int]) -> set[int]:
    found, todo = set[int](), [number]
    while todo and len(found) < _MOST_STEPS:
        call = flow.values[todo.pop()].call
        if call != LEAF:
            new = [n for n in flow.calls[call].reads if n not in right and flow.values[n].call != LEAF]
            todo += [n for n in new if n not in found]
            found.update(new)
    return found


def differing_ends(reference: Unmatched, other: Unmatched) -> tuple[set[int], set[int]]:
    """Ends of the one and of the other that have the same form: what both computed, and differently."""
    ours, theirs = reference.ends(), other.ends()
    forms = Counter(map(_form, ours)) & Counter(map(_form, theirs))
    here = {v.number for v in ours if forms[_form(v)]}
    there = {v.number for v in theirs if forms[_form(v)]}
    rest, rest_there = [v for v in ours if v.number not in here], [v for v in theirs if v.number not in there]
    for v, w in ((v, w) for v in rest for w in rest_there):
        if _is_plain_step(reference.flow, v) and _is_plain_step(other.flow, w) and _may_be_joined(v, w):
            here.add(v.number)
            there.add(w.number)
    for series in of_one_line(other.flow, [v for v in theirs if not forms[_form(v)]]):
        same = [v for v in ours if bool(v.eps) == bool(series[0].eps) and _may_be(v, series)]
        if same:
            here.update(v.number for v in same)
            there.update(v.number for v in series)
    return here, there


def _may_be(value: Value, series: list[Value]) -> bool:
    """A prefill's result, of which each decoding step has a part; the last may be all that is left."""
    return sum(part.numel for part in series) == value.numel


def _may_be_joined(value: Value, other: Value) -> bool:
    """As many numbers, with dimensions that are neighbours as one: too few say little."""
    is_number = bool(value.eps and other.eps) and value.numel == other.numel >= _FEW
    return is_number and are_joined(_form(value)[0], _form(other)[0])


def _is_plain_step(flow: Flow, value: Value) -> bool:
    return value.call != LEAF and not flow.calls[value.call].is_fused


def _form(value: Value) -> tuple[tuple[int, ...], bool]:
    return tuple(size for size in value.shape if size != 1), bool(value.eps)
