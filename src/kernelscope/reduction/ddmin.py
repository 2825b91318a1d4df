"""Delta debugging: the smallest part of a list that still fails. Independent of graphs.

Zeller's ddmin: first halves, then their complements, then finer parts. The result is 1-minimal: without any
one of its items it does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def ddmin(items: Sequence[_T], fails: Callable[[list[_T]], bool]) -> list[_T]:
    """`items` fail as a whole; `fails` is called once for each part, and never for the empty one."""
    found, known = list(items), dict[tuple[int, ...], bool]()
    indices = list(range(len(found)))

    def ask(part: list[int]) -> bool:
        key = tuple(part)
        if key not in known:
            known[key] = bool(part) and fails([found[i] for i in part])
        return known[key]

    pieces = 2
    while len(indices) >= 2:
        parts = _split(indices, pieces)
        smaller = next((part for part in parts if ask(part)), None)
        if smaller is not None:
            indices, pieces = smaller, 2
            continue
        rests = [[i for i in indices if i not in set(part)] for part in parts]
        smaller = next((rest for rest in rests if ask(rest)), None) if pieces > 2 else None
        if smaller is not None:
            indices, pieces = smaller, max(pieces - 1, 2)
        elif pieces < len(indices):
            pieces = min(2 * pieces, len(indices))
        else:
            break
    return [found[i] for i in indices]


def _split(indices: list[int], pieces: int) -> list[list[int]]:
    """Parts of about the same size, the last ones first: a wrong result is at the end."""
    size, more = divmod(len(indices), pieces)
    parts, start = [], 0
    for number in range(pieces):
        end = start + size + (number < more)
        parts.append(indices[start:end])
        start = end
    return [part for part in reversed(parts) if part]
