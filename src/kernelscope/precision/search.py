"""Which kernels may be rounded together: greedily, those first that change the outputs least."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")
Effect = Callable[[frozenset[K]], float]  # how far the outputs move if these are rounded


@dataclass(slots=True)
class Found(Generic[K]):
    """A choice, and the error of one more run with exactly that choice."""

    alone: dict[K, float]  # the effect of each kernel by itself
    chosen: list[K] = field(default_factory=list)
    refused: list[K] = field(default_factory=list)
    error: float = 0.0
    together: float = 0.0  # of all kernels at once
    is_kept: bool = False  # the error of that run is within the tolerance


def largest_choice(kernels: Sequence[K], effect: Effect[K], tolerance: float) -> Found[K]:
    """Every run counts: what is said of a choice was seen, never added up from single effects."""
    everything = frozenset(kernels)
    found: Found[K] = Found({kernel: effect(frozenset([kernel])) for kernel in kernels})
    found.together = effect(everything) if kernels else 0.0
    order = sorted(kernels, key=lambda kernel: found.alone[kernel])
    hopeful = [kernel for kernel in order if found.alone[kernel] <= tolerance]
    chosen: list[K] = []
    _grow(chosen, hopeful, lambda some: effect(frozenset(some)) <= tolerance)
    accepted = frozenset(chosen)
    found.error = effect(accepted)
    found.is_kept = _within(found.error, tolerance)
    found.chosen = [kernel for kernel in kernels if kernel in accepted]
    found.refused = [kernel for kernel in kernels if kernel not in accepted]
    return found


def _grow(chosen: list[K], candidates: Sequence[K], holds: Callable[[Iterable[K]], bool]) -> None:
    """Add as many as can be: all of them, or else each half."""
    if not candidates:
        return
    if holds([*chosen, *candidates]):
        chosen += candidates
    elif len(candidates) > 1:
        half = (len(candidates) + 1) // 2
        _grow(chosen, candidates[:half], holds)
        _grow(chosen, candidates[half:], holds)


def _within(error: float, tolerance: float) -> bool:
    return not math.isnan(error) and error <= tolerance
