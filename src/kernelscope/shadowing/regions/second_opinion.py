"""Whether differences of a whole function are no more than what rounding does to it elsewhere.

A function that rounds to integers, sorts or compares amplifies a rounding of one element to any size. Small
errors then change other elements than the compiled code changed, but about as many, and about as much.

A long chain of operators, such as a network with its gradients, amplifies roundings in all elements. What a
few runs with small errors do to one element then says little; what they do to all of them together says how
many elements may be how far away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.verdict_record import WRONG_SIGN, Unwritten, Verdict

_RUNS = 8
_MORE = 4.0  # times as many elements, and times as far
_MORE_ON_AVERAGE = 2.5


def judge_whole(
    made: torch.Tensor,
    eager: torch.Tensor,
    wide: Callable[[], torch.Tensor],
    jittered: Callable[[], torch.Tensor],
    eps: float,
    unwritten: Unwritten = lambda: None,
    *,
    signed_zeros: bool = False,
) -> Verdict:
    """What a whole graph computes: as `judge`, and what is wrong is looked at again."""
    verdict = judge(made, eager, wide, jittered, eps, signed_zeros=signed_zeros, unwritten=unwritten)
    if not verdict.is_wrong or verdict.reason == WRONG_SIGN:
        return verdict
    runs = [jittered() for _ in range(_RUNS)]
    return Verdict(False) if is_explained(made, wide(), runs.__getitem__, eager) else verdict


def is_explained(
    made: torch.Tensor, wide: torch.Tensor, jittered: Callable[[int], torch.Tensor], eager: torch.Tensor
) -> bool:
    """`jittered` gives the result with small errors, another one for each number."""
    if not (made.is_floating_point() or made.is_complex()) or wide.shape != made.shape:
        return False
    exact = _reals(wide)
    runs = [_reals(jittered(i)) for i in range(_RUNS)]
    errors = torch.stack([_away(run, exact) for run in runs])
    c, e = _away(_reals(made), exact), _away(_reals(eager), exact)
    usual = torch.maximum(errors.median(dim=0).values, e).clamp(
        min=float(exact.abs().mean()) * 1e-12 + 1e-300
    )
    far = 16 * usual
    many, most = int((c > far).sum()), max(int((one > far).sum()) for one in errors)
    if 0 < many <= _MORE * most and float(c.max()) <= _MORE * float(errors.max()):
        is_alike = True
    else:
        is_alike = _is_alike(c / usual, errors / usual) and _is_alike(c, errors)
        far = torch.full_like(far, torch.inf)
    others = [_reals(eager), *runs]
    return is_alike and _is_as_large_on_average(_reals(made) - exact, [o - exact for o in others], exact, far)


def _is_alike(made: torch.Tensor, errors: torch.Tensor) -> bool:
    """For each n: the n-th largest error is not far above the n/4-th largest of a run with small errors."""
    ours = made.sort(descending=True).values
    theirs = errors.sort(dim=1, descending=True).values.amax(dim=0)
    fewer = torch.arange(len(ours), device=ours.device) // int(_MORE)
    return bool((ours <= _MORE * theirs[fewer]).all())


def _is_as_large_on_average(
    error: torch.Tensor, errors: Sequence[torch.Tensor], exact: torch.Tensor, far: torch.Tensor
) -> bool:
    """Errors that are not far away: as a root mean square, and along the result, where mistakes add up."""

    def near(each: torch.Tensor) -> torch.Tensor:
        return torch.where(each.abs() <= far, each, torch.zeros_like(each)).nan_to_num()

    ours, theirs, along = near(error), [near(each) for each in errors], exact.nan_to_num(posinf=0, neginf=0)
    is_small = float(ours.norm()) <= _MORE_ON_AVERAGE * max(float(each.norm()) for each in theirs)
    return is_small and abs(float(ours @ along)) <= _MORE * max(abs(float(each @ along)) for each in theirs)


def _reals(value: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.double().flatten()


def _away(value: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    both = (value == exact) | (value.isnan() & exact.isnan())
    return torch.where(both, torch.zeros_like(exact), (value - exact).abs()).nan_to_num(nan=torch.inf)
