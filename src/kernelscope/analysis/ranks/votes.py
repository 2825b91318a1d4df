"""Ranks that should hold the same value and do not: which of them is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Vote:
    """Places in the list of values; without a majority all of them are suspect and none is known as good."""

    wrong: list[int]
    good: int | None

    @property
    def is_decided(self) -> bool:
        return self.good is not None


def vote(values: Sequence[Any], elsewhere: Callable[[], Counter[Any]] | None = None) -> Vote:
    """The majority is right; in a tie, what came out `elsewhere` in the same situation most often."""
    votes = Counter(values)
    right = _most(list(votes), votes)
    if len(right) > 1 and elsewhere is not None:
        right = _most(right, elsewhere())
    if len(right) > 1:
        return Vote(list(range(len(values))), None)
    wrong = [place for place, value in enumerate(values) if value != right[0]]
    return Vote(wrong, values.index(right[0]))


def _most(values: list[Any], counts: Counter[Any]) -> list[Any]:
    most = max(counts[value] for value in values)
    return [value for value in values if counts[value] == most]
