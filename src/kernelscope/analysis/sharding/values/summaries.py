"""Values of which only statistics were recorded: those that add up over shards are put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelscope.fingerprint.stats import Stats

from .fits import Allowed, Fit
from .layouts import REPLICATE, Layout, Mesh


@dataclass(frozen=True, slots=True)
class _Moments:
    """NaN where a number does not follow from those of the parts."""

    numel: int
    mean: float
    square: float  # mean of the squares
    l1: float  # mean of the absolute values
    low: float
    high: float
    terms: float = 0.0  # rms of what was added up
    spread: float = 0.0  # how far ranks that should hold the same are apart


def stats_fit(
    pieces: Mapping[int, Stats], expected: Stats, mesh: Mesh, layout: Layout, allowed: Allowed
) -> Fit | None:
    """None where statistics say nothing: of infinities, NaN or whole numbers."""
    whole = _moments(expected)
    parts = [_moments(pieces[rank]) for rank in mesh.ranks]
    if whole is None or any(part is None for part in parts) or not allowed.eps:
        return None
    grid: list[_Moments] = [part for part in parts if part is not None]
    for size, placement in zip(reversed(mesh.shape), reversed(layout.placements), strict=True):
        groups = [grid[i : i + size] for i in range(0, len(grid), size)]
        made = [_combined(group, placement) for group in groups]
        grid = [each for each in made if each is not None]
        if len(grid) < len(made):
            return None
    [found] = grid
    size_of_it = math.sqrt(whole.square)
    if found.numel != whole.numel:
        return Fit(mesh, layout, math.inf, 0.0)
    if not size_of_it:
        return Fit(mesh, layout, math.inf if found.square or found.mean else 0.0, 0.0)
    scale = layout.scale
    largest = max(abs(whole.low), abs(whole.high))
    errors = [
        abs(found.mean / scale - whole.mean) / size_of_it,
        abs(math.sqrt(found.square) / scale - size_of_it) / size_of_it,
        abs(found.l1 / scale - whole.l1) / size_of_it,
        abs(found.low / scale - whole.low) / largest,
        abs(found.high / scale - whole.high) / largest,
        found.spread / size_of_it,
    ]
    error = max(each for each in errors if not math.isnan(each))
    return Fit(mesh, layout, error, allowed.limit(found.terms / size_of_it))


def rms_of(stats: Stats) -> float:
    found = _moments(stats)
    return math.sqrt(found.square) if found is not None else math.inf


def _moments(stats: Stats) -> _Moments | None:
    if stats.finite != stats.numel:
        return None
    if not stats.numel:
        return _Moments(0, 0.0, 0.0, 0.0, math.inf, -math.inf)
    if stats.mean is None or stats.std is None or stats.min is None or stats.max is None:
        return None
    square = stats.mean**2 + stats.std**2
    return _Moments(stats.numel, stats.mean, square, stats.l1 / stats.numel, stats.min, stats.max)


def _combined(group: Sequence[_Moments], placement: str) -> _Moments | None:
    terms, spread = max(each.terms for each in group), max(each.spread for each in group)
    if "Shard(" in placement:
        numel = sum(each.numel for each in group)

        def mean(name: str) -> float:
            return sum(getattr(each, name) * each.numel for each in group) / numel if numel else 0.0

        low, high = min(each.low for each in group), max(each.high for each in group)
        return _Moments(numel, mean("mean"), mean("square"), mean("l1"), low, high, terms, spread)
    first = group[0]
    if len({each.numel for each in group}) != 1:
        return None
    if placement == REPLICATE:
        names = ("mean", "l1", "low", "high")
        apart = [abs(getattr(each, name) - getattr(first, name)) for each in group for name in names]
        known = [each for each in apart if not math.isnan(each)]
        return replace(first, terms=terms, spread=max([spread, *known]))
    if placement not in ("Partial(sum)", "Partial(avg)"):
        return None
    total = sum(each.mean for each in group) / (len(group) if placement == "Partial(avg)" else 1)
    rms = max(math.sqrt(each.square) if each.square >= 0 else 0.0 for each in group)
    nothing = math.nan
    return _Moments(first.numel, total, nothing, nothing, nothing, nothing, max(terms, rms), spread)
