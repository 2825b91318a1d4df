"""Whether a kernel's result has more error than rounding can explain.

c is what the kernel computed, e what eager computes from the same inputs, r the same in float64. A result
that is eager's bit by bit passes. Otherwise three ratios are computed: the largest error, the
root-mean-square error, and the gain (the part of the error that is proportional to the result, in which
rounding errors cancel and mistakes add up), each against what eager has or one rounding would give.
Only where one of them is suspicious is the float64 run repeated with small errors added, which shows how
much each element may move: a sum with cancellation, or a comparison near a tie, may move a lot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .discrete import judge_discrete
from .measure import in_memory, is_equal, sums
from .not_finite import unexplained
from .verdict_record import NOT_ROUNDED, WRONG_SIGN, Jittered, Unwritten, Verdict, wrong_at

JITTERED_RUNS = 4
NOISE = 4  # times the usual error of a result that is nothing but rounding: a few runs show too little of it


@dataclass(frozen=True, slots=True)
class Limits:
    """For results that are computed with this much rounding."""

    gain_floor: float
    suspicious: tuple[float, float, float]  # largest error, rms error, gain
    wrong: tuple[float, float, float]


FINE = Limits(4, (16, 12, 32), (64, 24, 64))  # float32, float64
COARSE = Limits(1.5, (4, 2, 4), (6, 2.5, 4))  # float16, bfloat16


def judge(
    made: torch.Tensor,
    eager: torch.Tensor,
    wide: Callable[[], torch.Tensor],
    jittered: Jittered,
    eps: float,
    *,
    adds: bool = True,
    signed_zeros: bool = False,
    unwritten: Unwritten = lambda: None,
    differs: bool = False,
) -> Verdict:
    """`made` and `eager` have one shape and dtype; the other two are computed only when needed.

    `adds`: many numbers go into one, in an order of the kernel's own. `signed_zeros`: the sign of a zero is
    defined, as by a copy, a negation or a product; that of a sum or a maximum is not. `unwritten`: elements
    of eager's result that no operator wrote; it is called only when something looks wrong. `differs`: it
    is expected to differ from eager, so that float64 is computed before the wait for that comparison.
    """
    judged = functools.partial(_judged, adds=adds, signed_zeros=signed_zeros)
    if differs:
        verdict = judged(made, eager, wide, jittered, eps, unwritten, is_different=True)
        verdict.is_bitwise = is_equal(made, eager)
    else:
        verdict = judged(made, eager, wide, jittered, eps, unwritten)
    if not verdict.is_wrong or (left := unwritten()) is None:
        return verdict
    loose = left.reshape(made.shape)

    def defined(value: torch.Tensor) -> torch.Tensor:
        value = value.expand(made.shape)
        return torch.where(loose, eager.to(value.dtype), value)

    return judged(
        defined(made), eager, lambda: defined(wide()), lambda: defined(jittered()), eps, lambda: None
    )


def _judged(
    made: torch.Tensor,
    eager: torch.Tensor,
    wide: Callable[[], torch.Tensor],
    jittered: Jittered,
    eps: float,
    unwritten: Unwritten,
    *,
    adds: bool,
    signed_zeros: bool,
    is_different: bool = False,
) -> Verdict:
    made, eager = in_memory(made), in_memory(eager)
    if made.numel() == 0 or (not is_different and is_equal(made, eager)):
        return Verdict(False, is_bitwise=True)
    reference = in_memory(wide()).expand(made.shape)
    if not (made.is_floating_point() or made.is_complex()):
        return judge_discrete(made, eager, reference, jittered, unwritten)
    verdict = _Floats(made, eager, reference, jittered, eps, adds=adds).judge()
    if signed_zeros and not verdict.is_wrong:
        return _judge_zeros(verdict, made, eager, reference, jittered)
    return verdict


class _Floats:
    """A result of real or complex numbers, beside eager and float64; complex ones as pairs of reals."""

    def __init__(
        self,
        made: torch.Tensor,
        eager: torch.Tensor,
        reference: torch.Tensor,
        jittered: Jittered,
        eps: float,
        *,
        adds: bool,
    ) -> None:
        self._adds, self._pairs = adds, made.is_complex()
        if made.is_complex():
            made, eager = _real_view(made), _real_view(eager)
        elif made.itemsize == 1:  # float8: its values, compared as floats
            made, eager = made.float(), eager.float()
        self.made, self.eager, self.reference = made, eager, _real_view(reference)
        self.jittered, self.eps = jittered, eps
        self.limits = COARSE if eps > 1e-5 else FINE
        self.least, self.most = _smallest(self.made.dtype), float(torch.finfo(self.made.dtype).max)
        self.sums = found = sums(self.made, self.eager, self.reference)
        self.count = max(found.considered, 1)
        self.gain_floor = self.limits.gain_floor * eps / math.sqrt(self.count)

    def judge(self) -> Verdict:
        ratios = self._ratios()
        verdict = Verdict(False, numbers=self._numbers(ratios))
        if self.sums.bad and bool((wrong := self._of_wrong_kind()).any()):
            place = int(wrong.to(torch.int8).argmax())
            verdict.numbers["wrong"] = int(wrong.sum())
            has = "NaN" if self.made.flatten()[place].isnan() else f"{float(self.made.flatten()[place]):.4g}"
            reason = f"neither eager nor float64 has {has} there, and rounding cannot explain it"
            return self._wrong(verdict, reason, place)
        if self.sums.considered < self.made.numel():
            verdict.suspect = self._not_finite_alone(verdict)
        if all(ratio <= limit for ratio, limit in zip(ratios, self.limits.suspicious, strict=True)):
            return verdict
        return self._look_closely(verdict)

    def _not_finite_alone(self, verdict: Verdict) -> Verdict | None:
        """Not finite where eager is: exact numbers explain it, and a program may still be wrong by it."""
        odd = (self.eager.isfinite() & ~self.made.isfinite()).flatten()
        if not bool(odd.any()):
            return None
        doubt = Verdict(False, numbers=verdict.numbers | {"wrong": int(odd.sum())})
        return self._wrong(doubt, NOT_ROUNDED, int(odd.to(torch.int8).argmax()))

    def _ratios(self) -> tuple[float, float, float]:
        found, n, eps, least = self.sums, self.count, self.eps, self.least
        worst = found.worst / max(found.eager_worst, eps * found.largest, least)
        rms_r = math.sqrt(found.reference_squares / n)
        rms = math.sqrt(found.squares / n) / max(math.sqrt(found.eager_squares / n), eps * rms_r / 3, least)
        power, gain = found.reference_squares, 0.0
        if power > 0 and math.isfinite(power):
            floor = max(abs(found.eager_along) / power, self.gain_floor)
            gain = abs(found.along) / power / max(floor, least / max(rms_r, least))
        return worst, rms, gain

    def _moved(self) -> torch.Tensor:
        """float64 once more, with small errors added."""
        return _real_view(in_memory(self.jittered())).expand(self.reference.shape).flatten()

    def _of_wrong_kind(self) -> torch.Tensor:
        """NaN, infinite or finite where it should be something else, and small errors do not explain it."""
        r, factor = self.reference.flatten(), self.limits.wrong[0]

        def tolerance(spread: torch.Tensor) -> torch.Tensor:
            return factor * torch.maximum(spread, (self.eps * r.abs()).clamp(min=self.least))

        return unexplained(
            self.made.double().flatten(), self.eager.double().flatten(), r, self._moved, self.most, tolerance,
            adds=self._adds, pairs=self._pairs,
        )  # fmt: skip

    def _look_closely(self, verdict: Verdict) -> Verdict:
        """With the spread of each element known, is one of them, or all of them together, out of bounds?"""
        r, e, c = self.reference.flatten(), self.eager.double().flatten(), self.made.double().flatten()
        found, spread = self.sums, (e - r).abs()
        # Where all elements lie just beside the middle of two neighbours, exact rounding moves all one way.
        exact = torch.nan_to_num(r.to(self.made.dtype).double() - r, posinf=0, neginf=0)
        gains = [abs(found.eager_along), float((exact * torch.nan_to_num(r)).sum().abs())]
        for _ in range(JITTERED_RUNS):
            away = torch.nan_to_num(self._moved() - r, nan=math.inf)
            spread = torch.maximum(spread, away.abs())
            along = torch.nan_to_num(away, posinf=0, neginf=0) * torch.nan_to_num(r)
            gains.append(float(along.sum().abs()))
        counted = e.isfinite() & (r.abs() <= self.most) & c.isfinite()
        usual = spread[counted & spread.isfinite()]
        middle, mean = (float(usual.median()), float(usual.mean())) if usual.numel() else (0.0, 0.0)
        sizes = r.abs()
        relative = spread / sizes
        some = relative[counted & (sizes > 0) & relative.isfinite()]
        relative_middle = float(some.median()) if some.numel() else 0.0
        scale = spread.clamp(min=0.5 * min(middle, mean))
        scale = torch.maximum(scale, (max(relative_middle, self.eps) * sizes).clamp(min=self.least))
        known = counted & scale.isfinite()  # elsewhere small errors give NaN, or anything
        n = max(int(counted.sum()), 1)
        usual_error = float(scale[known].square().mean().sqrt()) if bool(known.any()) else 0.0
        # All of it is rounding, as the gradient of a key's bias: no direction, and no elements of their own.
        is_noise = math.sqrt(found.reference_squares / n) < usual_error
        if is_noise:
            scale = scale.clamp(min=NOISE * usual_error)
            usual_error *= NOISE
        error = torch.where(known, (c - r).abs() / scale, torch.zeros_like(c))
        worst, where = float(error.max()), int(error.argmax())
        away = (c - r)[known]
        rms = float(away.square().mean().sqrt()) / max(usual_error, self.least) if away.numel() else 0.0
        power = max(found.reference_squares, 1e-300)
        floor = self.limits.gain_floor * self.eps / math.sqrt(n)
        is_whole = bool((known == counted).all())
        gain = 0.0 if is_noise or not is_whole else abs(found.along) / power / max(max(gains) / power, floor)
        verdict.numbers |= {"error_in_roundings": worst, "rms_in_roundings": rms, "gain_in_roundings": gain}
        element_limit, rms_limit, gain_limit = self.limits.wrong
        if worst > element_limit:
            verdict.numbers["wrong"] = int((error > element_limit).sum())
            reason = "elements have more error than rounding can explain"
        elif rms > rms_limit:
            reason = "the average error is larger than rounding can explain"
        elif gain_limit < gain < math.inf:
            verdict.numbers["bias"] = found.along / power
            reason = "all elements are off in one direction, by more than rounding can explain"
        else:
            return verdict
        return self._wrong(
            verdict, reason, where if worst > element_limit or found.where < 0 else int(found.where)
        )

    def _wrong(self, verdict: Verdict, reason: str, place: int) -> Verdict:
        return wrong_at(verdict, reason, place, self.made, self.eager, self.reference)

    def _numbers(self, ratios: tuple[float, float, float]) -> dict[str, float | int | str]:
        found, n, power = self.sums, self.count, self.sums.reference_squares
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


def _judge_zeros(
    verdict: Verdict, made: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, jittered: Jittered
) -> Verdict:
    """A zero with the wrong sign, where eager and float64 agree on it and no small error changes it."""
    c, e, r = (_parts(value) for value in (made, eager, reference))
    zeros = (c == 0) & (e == 0) & (r == 0) & (e.signbit() == r.signbit())
    wrong = zeros & (c.signbit() != e.signbit())
    if not bool(wrong.any()):
        return verdict
    moved = _parts(in_memory(jittered()).expand(made.shape))
    wrong &= (moved == 0) & (moved.signbit() == r.signbit())
    if not bool(wrong.any()):
        return verdict
    verdict.numbers["wrong"] = int(wrong.sum())
    place = int(wrong.flatten().to(torch.int8).argmax())
    return wrong_at(verdict, WRONG_SIGN, place, c, e, r)


def _parts(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def _real_view(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value.double()


def _smallest(dtype: torch.dtype) -> float:
    """Below this, results may be flushed to zero."""
    found = torch.finfo(dtype)
    is_fine = dtype in (torch.float32, torch.float64)
    return float(found.tiny if is_fine else found.smallest_normal * found.eps)


def why_not_comparable(made: Any, eager: Any) -> str:
    if not isinstance(made, torch.Tensor) or not isinstance(eager, torch.Tensor):
        return "it is not a tensor"
    if made.numel() == eager.numel() and made.dtype == eager.dtype:
        return ""
    node, buffer = f"{eager.dtype}{list(eager.shape)}", f"{made.dtype}{list(made.shape)}"
    return f"its FX node gives {node}, but the buffer is {buffer}"
