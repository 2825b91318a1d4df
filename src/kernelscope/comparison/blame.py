"""Where the other program leaves the reference: the first call whose result has no counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .flow import LEAF, Call, Flow, Value


class Unmatched:
    """Values of one program that stand for none of the other's."""

    def __init__(self, flow: Flow, matched: set[int]) -> None:
        self.flow, self.matched = flow, matched
        self.verified: set[int] = set()
        for value in flow.values:
            if value.number in matched or self._is_plain(value) or self._is_read_well(value):
                self.verified.add(value.number)

    def _is_plain(self, value: Value) -> bool:
        """Made of nothing, such as zeros; or a copy of something that is right."""
        if value.sources:
            return all(number in self.verified for number in value.sources)
        return value.call != LEAF and not self.flow.calls[value.call].reads

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
        return [
            v
            for v in self.flow.values
            if v.number not in self.verified and v.call != LEAF and self._is_end(v)
        ]

    def _is_end(self, value: Value) -> bool:
        return not any(self.flow.calls[reader].writes for reader in value.readers)

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


def differing_ends(reference: Unmatched, other: Unmatched) -> tuple[set[int], set[int]]:
    """Ends of the one and of the other that have the same form: what both computed, and differently."""
    ours, theirs = reference.ends(), other.ends()
    forms = Counter(map(_form, ours)) & Counter(map(_form, theirs))
    return {v.number for v in ours if forms[_form(v)]}, {v.number for v in theirs if forms[_form(v)]}


def _form(value: Value) -> object:
    return tuple(size for size in value.shape if size != 1), bool(value.eps)
