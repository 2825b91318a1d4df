"""Delta debugging: the smallest part of a list that still fails. Pure; knows nothing of graphs.

Zeller's ddmin: first halves, then their complements, then finer. What it gives is 1-minimal: without any
one of its items it does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def ddmin(items: Sequence[_T], fails: Callable[[list[_T]], bool]) -> list[_T]:
    """`items` fail as a whole; `fails` is asked about no part twice, and never about the empty one."""
    found, known = list(items), dict[tuple[int, ...], bool]()
    places = list(range(len(found)))

    def ask(part: list[int]) -> bool:
        key = tuple(part)
        if key not in known:
            known[key] = bool(part) and fails([found[i] for i in part])
        return known[key]

    pieces = 2
    while len(places) >= 2:
        parts = _split(places, pieces)
        smaller = next((part for part in parts if ask(part)), None)
        if smaller is not None:
            places, pieces = smaller, 2
            continue
        rests = [[i for i in places if i not in set(part)] for part in parts]
        smaller = next((rest for rest in rests if ask(rest)), None) if pieces > 2 else None
        if smaller is not None:
            places, pieces = smaller, max(pieces - 1, 2)
        elif pieces < len(places):
            pieces = min(2 * pieces, len(places))
        else:
            break
    return [found[i] for i in places]


def _split(places: list[int], pieces: int) -> list[list[int]]:
    """Into so many parts of about the same size, the last ones first: a wrong result is at the end."""
    size, more = divmod(len(places), pieces)
    parts, start = [], 0
    for number in range(pieces):
        end = start + size + (number < more)
        parts.append(places[start:end])
        start = end
    return [part for part in reversed(parts) if part]
