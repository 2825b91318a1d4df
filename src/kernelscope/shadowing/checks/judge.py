"""Whether a kernel's result is worse than rounding explains.

c is what the kernel computed, e what eager computes from the same inputs, r the same in float64. A result
that is eager's bit by bit passes. Otherwise three ratios are looked at: the largest error, the
root-mean-square error, and the gain (the part of the error that is proportional to the result, in which
rounding errors cancel and mistakes add up), each against what eager has or one rounding would give.
Only where one of them is suspicious is the float64 run repeated with small errors added, which tells how
much each element may move: a sum with cancellation, or a comparison near a tie, may move a lot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .measure import Sums, is_equal, sums

Jittered = Callable[[], torch.Tensor]
JITTERED_RUNS = 4
RUNS_AT_MOST = 16  # until each element that looks wrong is explained


@dataclass(frozen=True, slots=True)
class Limits:
    """For results that are computed with this much rounding."""

    gain_floor: float
    suspicious: tuple[float, float, float]  # largest error, rms error, gain
    wrong: tuple[float, float, float]


FINE = Limits(4, (16, 12, 32), (64, 24, 64))  # float32, float64
COARSE = Limits(1.5, (4, 2, 4), (6, 2.5, 4))  # float16, bfloat16


@dataclass(slots=True)
class Verdict:
    """What was found of one buffer."""

    is_wrong: bool
    is_bitwise: bool = False
    reason: str = ""
    numbers: dict[str, float | int | str] = field(default_factory=dict)
    where: tuple[int, ...] | None = None


def judge(
    made: torch.Tensor,
    eager: torch.Tensor,
    wide: Callable[[], torch.Tensor],
    jittered: Jittered,
    eps: float,
) -> Verdict:
    """`made` and `eager` have one shape and dtype; the other two are computed only when needed."""
    made, eager = _in_memory(made), _in_memory(eager)
    if made.numel() == 0 or is_equal(made, eager):
        return Verdict(False, is_bitwise=True)
    reference = _in_memory(wide()).expand(made.shape)
    if not (made.is_floating_point() or made.is_complex()):
        return _judge_discrete(made, eager, reference, jittered)
    made, eager, reference, shape = _as_reals(made, eager, reference)
    limits = COARSE if eps > 1e-5 else FINE
    found = sums(made, eager, reference)
    ratios = _ratios(found, eps, limits, _smallest(made.dtype))
    verdict = Verdict(False, numbers=_numbers(found, ratios))
    if found.bad and (place := _not_finite(made, eager, reference, jittered)) is not None:
        return _wrong(verdict, "not finite where it should be, or finite where it should not", made, eager,
                      reference, place, shape)  # fmt: skip
    if all(ratio <= limit for ratio, limit in zip(ratios, limits.suspicious, strict=True)):
        return verdict
    return _look_closely(verdict, made, eager, reference, jittered, eps, limits, found, shape)


def _in_memory(value: torch.Tensor) -> torch.Tensor:
    """As numbers that lie in memory: torch keeps some conjugates, signs and zeros to itself."""
    if value._is_zerotensor():
        return torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return value.resolve_conj().resolve_neg()


def _ratios(found: Sums, eps: float, limits: Limits, least: float) -> tuple[float, float, float]:
    n = max(found.considered, 1)
    worst = found.worst / max(found.eager_worst, eps * found.largest, least)
    rms_r = math.sqrt(found.reference_squares / n)
    rms = math.sqrt(found.squares / n) / max(math.sqrt(found.eager_squares / n), eps * rms_r / 3, least)
    power = found.reference_squares
    gain = 0.0
    if power > 0 and math.isfinite(power):
        floor = max(abs(found.eager_along) / power, limits.gain_floor * eps / math.sqrt(n))
        gain = abs(found.along) / power / max(floor, least / max(rms_r, least))
    return worst, rms, gain


def _not_finite(
    made: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, jittered: Jittered
) -> int | None:
    """An element that is finite where the others are not, or the other way round, and small errors do not
    explain it: 1 - p, of a p that is nearly 1, may be 0 or not.
    """
    limit = float(torch.finfo(made.dtype).max)
    c, e, r = made.flatten(), eager.flatten(), reference.flatten()
    wrong = (e.isfinite() & (r.abs() <= limit) & ~c.isfinite()) | (e.isnan() & r.isnan() & ~c.isnan())
    wrong |= e.isinf() & (r.abs() > limit) & ((e > 0) == (r > 0)) & (c != e)
    for _ in range(RUNS_AT_MOST):
        moved = _real_view(_in_memory(jittered())).expand(reference.shape).flatten()
        wrong &= (moved.isfinite() & (moved.abs() <= limit)) != c.isfinite()
        if not bool(wrong.any()):
            return None
    return int(wrong.to(torch.int8).argmax())


def _look_closely(
    verdict: Verdict,
    made: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
    jittered: Jittered,
    eps: float,
    limits: Limits,
    found: Sums,
    shape: tuple[int, ...],
) -> Verdict:
    """With the spread of each element known, is one of them, or all of them together, out of bounds?"""
    r, e, c = reference.flatten(), eager.double().flatten(), made.double().flatten()
    spread = (e - r).abs()
    gains = [abs(found.eager_along)]
    for _ in range(JITTERED_RUNS):
        moved = _real_view(_in_memory(jittered())).expand(reference.shape).flatten()
        away = torch.nan_to_num(moved - r, nan=math.inf)
        spread = torch.maximum(spread, away.abs())
        gains.append(float((torch.nan_to_num(away, posinf=0, neginf=0) * torch.nan_to_num(r)).sum().abs()))
    counted = e.isfinite() & (r.abs() <= float(torch.finfo(made.dtype).max)) & c.isfinite()
    usual = spread[counted & spread.isfinite()]
    middle = float(usual.median()) if usual.numel() else 0.0
    mean = float(usual.mean()) if usual.numel() else 0.0
    sizes = r.abs()
    relative = spread / sizes
    some = relative[counted & (sizes > 0) & relative.isfinite()]
    relative_middle = float(some.median()) if some.numel() else 0.0
    floor = torch.maximum((max(relative_middle, eps)) * sizes, torch.full_like(sizes, _smallest(made.dtype)))
    scale = torch.maximum(torch.maximum(spread, torch.full_like(spread, 0.5 * min(middle, mean))), floor)
    error = torch.where(counted, (c - r).abs() / scale, torch.zeros_like(c))
    worst, where = error.max(0)
    n = max(int(counted.sum()), 1)
    rms_scale = float(
        torch.where(counted & scale.isfinite(), scale, torch.zeros_like(scale)).square().mean().sqrt()
    )
    rms = math.sqrt(found.squares / n) / max(rms_scale, _smallest(made.dtype))
    power = max(found.reference_squares, 1e-300)
    gain_scale = max(max(gains) / power, limits.gain_floor * eps / math.sqrt(n))
    gain = abs(found.along) / power / gain_scale
    verdict.numbers |= {
        "error_in_roundings": float(worst), "rms_in_roundings": rms, "gain_in_roundings": gain,
    }  # fmt: skip
    element_limit, rms_limit, gain_limit = limits.wrong
    told = ""
    if float(worst) > element_limit:
        told = f"an element is off by {float(worst):.3g} times what rounding explains"
    elif rms > rms_limit:
        told = f"on average it is off by {rms:.3g} times what rounding explains"
    elif gain_limit < gain < math.inf:
        told = f"all of it is off in one direction, by {gain:.3g} times what rounding explains"
    if not told:
        return verdict
    place = int(where) if float(worst) > element_limit or found.where < 0 else int(found.where)
    return _wrong(verdict, told, made, eager, reference, place, shape)


def _judge_discrete(
    made: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, jittered: Jittered
) -> Verdict:
    """Integers and booleans disagree only where no small error would make them differ."""
    wrong = (made != eager) & (made != reference.to(made.dtype))
    differing = int((made != eager).sum())
    verdict = Verdict(False, numbers={"differing": differing, "count": made.numel()})
    if not bool(wrong.any()):
        return verdict
    for _ in range(RUNS_AT_MOST):
        moved = _in_memory(jittered()).to(made.dtype).expand(made.shape)
        wrong &= moved == reference.to(made.dtype)
        if not bool(wrong.any()):
            break
    count = int(wrong.sum())
    if not count:
        return verdict
    place = int(wrong.flatten().to(torch.int8).argmax())
    verdict.numbers["wrong"] = count
    reason = f"{count} of {made.numel()} values differ, and not because of rounding"
    return _wrong(verdict, reason, made, eager, reference, place, tuple(made.shape))


def _wrong(
    verdict: Verdict,
    reason: str,
    made: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
    place: int,
    shape: tuple[int, ...],
) -> Verdict:
    verdict.is_wrong, verdict.reason = True, reason
    verdict.where = _coordinates(place, shape)
    verdict.numbers |= {
        "compiled": made.flatten()[place].item(),
        "eager": eager.flatten()[place].item(),
        "float64": reference.flatten()[place].item(),
    }
    return verdict


def _numbers(found: Sums, ratios: tuple[float, float, float]) -> dict[str, float | int | str]:
    n = max(found.considered, 1)
    power = found.reference_squares
    return {
        "max_abs_error": found.worst,
        "max_rel_error": found.worst / found.largest if found.largest else 0.0,
        "rms_error": math.sqrt(found.squares / n),
        "eager_max_abs_error": found.eager_worst,
        "eager_rms_error": math.sqrt(found.eager_squares / n),
        "gain": found.along / power if power > 0 else 0.0,
        "max_error_over_eager": ratios[0],
        "rms_error_over_eager": ratios[1],
        "gain_over_eager": ratios[2],
        "not_finite": int(found.bad),
        "count": int(found.considered),
    }


def _as_reals(
    made: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[int, ...]]:
    shape = tuple(made.shape)
    if made.is_complex():
        return _real_view(made), _real_view(eager), _real_view(reference), (*shape, 2)
    if made.itemsize == 1:  # float8: what it holds, compared as floats
        return made.float(), eager.float(), reference.double(), shape
    return made, eager, reference.double(), shape


def _real_view(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value.double()


def _smallest(dtype: torch.dtype) -> float:
    """Below this, results may be flushed to zero."""
    found = torch.finfo(dtype)
    return (
        float(found.tiny)
        if dtype in (torch.float32, torch.float64)
        else float(found.smallest_normal * found.eps)
    )


def _coordinates(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(place % size if size else 0)
        place //= size or 1
    return tuple(reversed(found))
