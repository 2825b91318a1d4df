"""Values that one line of a program made step by step: of each layer, and of each sequence, by themselves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from .calls_and_values import LEAF, Flow, Value
from .lines import of_one_line

_MOST = 4096  # calls of one line: more are not tried
_MOST_SERIES = 256  # of one line and form
Shape = tuple[int, ...]


class StepsOfLine:
    """What a line made for one layer, in order: of one sequence, or of several one after the other."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self._numbers = [0, *accumulate(value.numel for value in values)]
        self._rows = [0, *accumulate(value.shape[-2] if len(value.shape) > 1 else 0 for value in values)]
        self._end_of_numbers = {total: place for place, total in enumerate(self._numbers)}
        self._end_of_rows = {total: place for place, total in enumerate(self._rows)}

    def series_of(self, shape: Shape) -> Iterator[list[Value]]:
        """Neighbours that have as many numbers or rows as this shape."""
        numbers, rows = math.prod(shape), shape[-2] if len(shape) > 1 else 0
        found = 0
        for start in range(len(self.values)):
            by_numbers = self._end_of_numbers.get(self._numbers[start] + numbers, 0)
            by_rows = self._end_of_rows.get(self._rows[start] + rows, 0) if rows else 0
            for end in {by_numbers, by_rows}:
                if end - start > 1 and found < _MOST_SERIES:
                    found += 1
                    yield self.values[start:end]


def steps_of_lines(flow: Flow, values: Iterable[Value]) -> list[StepsOfLine]:
    """By line; a line that runs for several layers in each step makes as many series."""
    found: dict[tuple[int, ...], list[Value]] = {}
    for group in of_one_line(flow, values):
        if len(group) > _MOST:
            continue
        for layer in _by_weights(flow, group):
            for parts in _every_nth(layer):
                found[tuple(part.number for part in parts)] = parts
    return [StepsOfLine(parts) for parts in found.values()]


def _by_weights(flow: Flow, group: list[Value]) -> list[list[Value]]:
    """A line that computes with several weights may do so in any order, and results of several sizes."""
    found: dict[frozenset[int], list[Value]] = defaultdict(list)
    for value in group:
        reads = (_source(flow, number) for number in flow.calls[value.call].reads)
        found[frozenset(n for n in reads if flow.values[n].call == LEAF and flow.values[n].eps)].append(value)
    return list(found.values())


def _source(flow: Flow, number: int) -> int:
    """Itself, or what it is a copy of in another dtype."""
    while len(flow.values[number].sources) == 1:
        number = flow.values[number].sources[0]
    return number


def _every_nth(group: list[Value]) -> Iterator[list[Value]]:
    for layers in range(1, len(group) // 2 + 1):
        if len(group) % layers == 0:
            yield from (group[first::layers] for first in range(layers))
