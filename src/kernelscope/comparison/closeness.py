"""Whether a value is what its inputs and rounding explain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .layouts import Layout

_HALF = 1e-4  # a coarser rounding is that of a half-precision dtype
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Limits:
    """How many times the measured noise counts as rounding."""

    element: float
    rms: float
    gain: float


@dataclass(frozen=True, slots=True)
class Roundings:
    """Of the other program's value, and of what it was computed from."""

    eps: float
    coarse: float
    reach: float
    tiny: float


_LIMITS = {True: Limits(12.0, 3.0, 4.0), False: Limits(64.0, 16.0, 32.0)}


@dataclass(frozen=True, slots=True)
class Closeness:
    """A value beside the reference's; `excess` above 1 is more than rounding explains."""

    excess: float
    what: str  # which number is the excess: element, rms, gain, flips, not-finite
    max_abs: float
    difference: float  # rms, relative to the reference's
    noise: float  # the same of one rounding of its inputs, measured
    differing: int
    elements: int
    relative: float = 0.0  # of each element to its own size, the mean: an epsilon shows in small ones
    smallest: float = 0.0  # error that would be seen, if all elements had one: rms, relative
    layout: Layout | None = None  # where the other has the same numbers in another order

    @property
    def within(self) -> bool:
        return self.excess <= 1.0


def noise_of(value: torch.Tensor, replicas: Sequence[torch.Tensor]) -> float:
    """How far replicas are from a value: rms, relative to its own; for integers the share that differs."""
    if not replicas or not value.numel():
        return 0.0
    if not (value.is_floating_point() or value.is_complex()):
        return max(float((each != value).double().mean()) for each in replicas)
    r = _wide(value)
    size = _rms(r)
    if not math.isfinite(size):  # infinities of a mask: the others
        finite = r.isfinite()
        r, others = r[finite], [_wide(each)[finite] for each in replicas]
        size = _rms(r)
    else:
        others = [_wide(each) for each in replicas]
    most = max(_rms(each - r) for each in others)
    found = most / size if size else float(most > 0)  # of what has cancelled to zero, noise is all there is
    return found if math.isfinite(found) else 0.0


def closeness(
    other: torch.Tensor,
    value: torch.Tensor,
    replicas: Sequence[torch.Tensor],
    eps: float,
    reach: float = 0.0,
    tiny: float = 0.0,
    coarse: float = 0.0,
) -> Closeness:
    """Of another program's value to the reference's on the same inputs.

    The replicas are the reference's value with inputs that were perturbed by one rounding; eps is one
    rounding of the other's dtype, tiny its smallest number, reach how many numbers went into one element, and
    coarse one rounding of the inputs: float32 that is computed from bfloat16 has the noise of bfloat16.
    """
    is_discrete = not (value.is_floating_point() or value.is_complex())
    if is_discrete or not (other.is_floating_point() or other.is_complex()):
        return _discrete(other, value, replicas)
    r, b = _wide(value).reshape(-1), _wide(other).reshape(-1)
    if r.numel() != b.numel():  # complex numbers and real ones
        return Closeness(math.inf, "element", math.inf, math.inf, 0.0, r.numel(), r.numel())
    shaken = [_wide(each).reshape(-1) for each in replicas]
    if not math.isfinite(float(sum((each.sum() for each in shaken), r.sum() + b.sum()))):
        apart = _not_finite(b, r, shaken)
        if apart:
            return Closeness(math.inf, "not-finite", math.inf, math.inf, 0.0, apart, r.numel())
        is_finite = r.isfinite() & b.isfinite()
        for each in shaken:
            is_finite &= each.isfinite()
        r, b, shaken = r[is_finite], b[is_finite], [each[is_finite] for each in shaken]
    if not r.numel():
        return Closeness(0.0, "element", 0.0, 0.0, 0.0, 0, 0)
    return _numbers(b, r, shaken, Roundings(eps, max(eps, coarse), reach, tiny))


def _numbers(
    b: torch.Tensor, r: torch.Tensor, shaken: Sequence[torch.Tensor], roundings: Roundings
) -> Closeness:
    limits, own_limits = _LIMITS[roundings.coarse > _HALF], _LIMITS[roundings.eps > _HALF]
    difference, size = (b - r).abs(), r.abs()
    own, tiny = 0.5 * roundings.eps * (1 + math.sqrt(roundings.reach) / 8), roundings.tiny
    sigma = rounding = own * size + tiny
    for each in shaken:
        sigma = torch.maximum(sigma, (each - r).abs())
    # Where chance left an element untouched, its neighbours tell how far it may move.
    typical = 0.5 * min(float(sigma.median()), float(sigma.mean()))
    ratio = float((sigma / size.clamp_min(_TINY)).median())
    allowed = limits.element * torch.maximum(sigma, ratio * size).clamp_min(max(typical, _TINY))
    allowed = torch.maximum(allowed, own_limits.element * rounding)
    element = float((difference / allowed).max())
    rms_b, rms_sigma, rms_r = _rms(difference), _rms(sigma), _rms(r)
    most = max(limits.rms * rms_sigma, own_limits.rms * _rms(rounding), _TINY)
    rms = rms_b / most if rms_b else 0.0
    smallest = most / rms_r if rms_r else 0.0
    power = float((r * r).sum())
    gain = 0.0
    if power:
        shakes = [abs(float(((each - r) * r).sum())) / power for each in shaken]
        moved = abs(float(((b - r) * r).sum())) / power
        most = limits.gain * max([_TINY, *shakes])
        chance = (
            3 * float((rounding * r).square().sum().sqrt()) / power
        )  # of a rounding of each element by itself
        gain = moved / max(most, own_limits.gain * chance)
        if gain > 1:  # equal elements are rounded alike
            values, counts = torch.unique(r, return_counts=True)
            alike = counts * values * (own * values.abs() + tiny)
            chance = 3 * float(alike.square().sum().sqrt()) / power
            gain = moved / max(most, own_limits.gain * chance)
    excess, what = max((element, "element"), (rms, "rms"), (gain, "gain"))
    return Closeness(
        excess, what, float(difference.max()), rms_b / rms_r if rms_r else math.inf if rms_b else 0.0,
        rms_sigma / rms_r if rms_r else 0.0, int((difference > 0).sum()), r.numel(),
        float((difference / size.clamp_min(_TINY)).clamp_max(1.0).mean()), smallest,
    )  # fmt: skip


def _discrete(other: torch.Tensor, value: torch.Tensor, replicas: Sequence[torch.Tensor]) -> Closeness:
    """Integers: they may differ where a rounding of the inputs flips them, and about as often."""
    a, b = value.to(torch.float64), other.to(torch.float64).reshape(value.shape)
    differs = a != b
    flips = torch.zeros_like(differs)
    for each in replicas:
        flips |= each.to(torch.float64) != a
    count, flipped = int(differs.sum()), int(flips.sum())
    excess = 0.0 if not count else count / (3 * flipped) if flipped else math.inf
    share = count / max(a.numel(), 1)
    most = float((a - b).abs().nan_to_num(math.inf).max()) if count else 0.0
    return Closeness(excess, "flips", most, share, flipped / max(a.numel(), 1), count, a.numel())


def _not_finite(b: torch.Tensor, r: torch.Tensor, shaken: Sequence[torch.Tensor]) -> int:
    """Elements that are infinite or NaN on one side only, although no replica is."""
    same = (b == r) | (b.isnan() & r.isnan()) | (b.isfinite() & r.isfinite())
    for each in shaken:
        same |= ~each.isfinite() & ~b.isfinite()
    return int((~same).sum())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj()).to(torch.float64)
    return tensor.to(torch.float64)


def _rms(tensor: torch.Tensor) -> float:
    return math.sqrt(float(tensor.square().mean())) if tensor.numel() else 0.0
