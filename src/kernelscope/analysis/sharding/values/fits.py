"""Whether what the ranks hold is the reference's value, but for rounding in a different order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelscope.events import TensorSpec

from .layouts import Layout, Mesh, farthest, joined, rms

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
        "complex64": 2.0**-23, "complex128": 2.0**-52}  # fmt: skip
_COARSE = {"float8": 2.0**-3}
_ROUNDINGS, _ROUNDINGS_OF_HALF = 64.0, 8.0  # that one call may be off by
_GAIN = 16.0  # by which one call may enlarge what its inputs are off by
_CONFUSING = 0.01  # noise with which a value may seem to be another, or a multiple of it
_FLIPS = 0.01  # of whole numbers or truths, where the inputs are off by rounding


@dataclass(frozen=True, slots=True)
class Fit:
    """A value of the ranks, put together in one way, beside the reference's."""

    mesh: Mesh
    layout: Layout
    error: float  # relative to the reference's value; infinite if shapes or infinities differ
    limit: float

    @property
    def is_good(self) -> bool:
        return self.error <= self.limit


@dataclass(frozen=True, slots=True)
class Allowed:
    """What rounding explains: of a call with inputs that are off by `noise`."""

    eps: float
    reach: float  # how many numbers went into one element
    noise: float

    def limit(self, scale: float) -> float:
        if not self.eps:
            return _FLIPS if self.noise else 0.0
        roundings = _ROUNDINGS_OF_HALF if self.eps > 1e-4 else _ROUNDINGS
        own = roundings * self.eps * (1 + math.sqrt(self.reach) / 8)
        return own * max(scale, 1.0) + _GAIN * self.noise


def eps_of(*specs: TensorSpec | None) -> float:
    """One rounding of the coarsest of some dtypes; 0 for whole numbers."""
    found = [_EPS.get(s.dtype) or next((e for d, e in _COARSE.items() if s.dtype.startswith(d)), 0.0)
             for s in specs if s is not None]  # fmt: skip
    return max(found, default=0.0)


def fit(pieces: Mapping[int, Any], reference: Any, mesh: Mesh, layout: Layout, allowed: Allowed) -> Fit:
    whole = joined(pieces, mesh, layout)
    if whole is None or whole.value.shape != reference.shape:
        return Fit(mesh, layout, math.inf, 0.0)
    size = rms(reference) if np.isfinite(reference).all() else rms(reference[np.isfinite(reference)])
    if not allowed.eps:
        differs = float(np.mean(whole.value != reference)) if reference.size else 0.0
        return Fit(
            mesh, layout, max(differs, float(whole.spread > 0 and not allowed.noise)), allowed.limit(1)
        )
    error = relative_error(whole.value, reference) + (whole.spread / size if size else whole.spread)
    return Fit(mesh, layout, error, allowed.limit(whole.terms / size if size else 1.0))


def relative_error(value: Any, reference: Any) -> float:
    """Of the worse of two: rms to rms, largest difference to largest element."""
    finite = np.isfinite(reference)
    if not finite.all() or not np.isfinite(value).all():
        same = (value == reference) | (np.isnan(value) & np.isnan(reference)) | (finite & np.isfinite(value))
        if not same.all():
            return math.inf
        value, reference = value[finite], reference[finite]
    if not reference.size:
        return 0.0
    difference = np.abs(value - reference)
    most = float(difference.max())
    if not most:
        return 0.0
    size, largest = rms(reference), float(np.abs(reference).max())
    return max(rms(difference) / size, most / largest) if size else math.inf


def is_apart(piece: Any, part: Any, whole: Any, limit: float) -> bool:
    """Whether a part is off by more than a limit, which is relative to the whole."""
    if piece.shape != part.shape:
        return True
    most = farthest(piece, part)
    return most > 0 and most > limit * float(np.abs(whole[np.isfinite(whole)]).max(initial=0))


def best(fits: Iterable[Fit], noise: float = 0.0) -> Fit | None:
    """The first that is good, or else the one that is least off.

    Where the inputs are off by so much that a wrong layout may seem good, the good one that is least off.
    """
    least: Fit | None = None
    for each in fits:
        if each.is_good and (noise <= _CONFUSING or each.error <= _CONFUSING):
            return each
        if least is None or (each.is_good, -each.error) > (least.is_good, -least.error):
            least = each
    return least
