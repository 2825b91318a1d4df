"""Which call of a rank does what which call of the reference does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from kernelscope.analysis.alignment.sequences import matching_blocks
from kernelscope.model.call import KernelCall

from .part import Part, outputs

_TRIED = 32  # calls of one name whose values are looked at for one call of the reference


def key_of(call: KernelCall) -> Hashable:
    return call.step, call.phase, call.kernel_name, len(outputs(call))


class Pairing:
    """The calls of all ranks that belong together, and their likely counterparts in the reference."""

    def __init__(self, reference: Part, ranks: Sequence[Part]) -> None:
        self.reference, self.first = reference, ranks[0]
        self._same: list[dict[int, KernelCall]] = []  # by rank: its call for a call of the first rank
        for part in ranks[1:]:
            pairs = _common(self.first.calls, part.calls)
            self._same.append({a.index: b for a, b in pairs})
        self._likely = {a.index: b for a, b in _common(reference.calls, self.first.calls)}
        self._by_key: dict[Hashable, list[KernelCall]] = defaultdict(list)
        for call in self.first.calls:
            self._by_key[key_of(call)].append(call)
        self._taken: set[int] = set()

    def likely(self, call: KernelCall) -> KernelCall | None:
        return self._likely.get(call.index)

    def candidates(self, call: KernelCall) -> Iterator[KernelCall]:
        """Calls of the first rank that may be this one of the reference, likeliest first."""
        likely = self._likely.get(call.index)
        if likely is not None and likely.index not in self._taken:
            yield likely
        others = [c for c in self._by_key[key_of(call)] if c.index not in self._taken and c is not likely]
        if likely is not None:
            at = likely.index
            others.sort(key=lambda each: abs(each.index - at))
        yield from others[:_TRIED]

    def take(self, call: KernelCall) -> None:
        self._taken.add(call.index)

    def on_all_ranks(self, call: KernelCall) -> list[KernelCall] | None:
        """A call of the first rank with those of the others; None if a rank has no such call."""
        found = [call]
        for same in self._same:
            if call.index not in same:
                return None
            found.append(same[call.index])
        return found


def _common(a: Sequence[KernelCall], b: Sequence[KernelCall]) -> Iterable[tuple[KernelCall, KernelCall]]:
    numbers: dict[Hashable, int] = {}
    codes = [
        np.array([numbers.setdefault(key_of(call), len(numbers)) for call in calls], np.int64)
        for calls in (a, b)
    ]
    for i, j, length in matching_blocks(*codes):
        yield from zip(a[i : i + length], b[j : j + length], strict=True)
