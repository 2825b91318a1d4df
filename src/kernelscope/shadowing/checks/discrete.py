"""Whether integers and booleans are what rounding explains."""

from __future__ import annotations

import torch

from .measure import in_memory
from .verdict_record import NOT_ROUNDED, Jittered, Unwritten, Verdict, wrong_at

_RUNS_AT_MOST = 16  # until each element that looks wrong is explained


def judge_discrete(
    made: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
    jittered: Jittered,
    unwritten: Unwritten,
) -> Verdict:
    """Integers and booleans are wrong only where no small error would make them differ."""
    exact = reference.to(made.dtype)
    differing = made != eager
    wrong = differing & (made != exact)
    # Sooner than all those runs: attention without dropout never writes the seed that it returns.
    if bool(wrong.any()) and (left := unwritten()) is not None:
        defined = ~left.reshape(made.shape)
        wrong, differing = wrong & defined, differing & defined
        if not bool(differing.any()):
            return Verdict(False, is_bitwise=True)
    verdict = Verdict(False, numbers={"differing": int(differing.sum()), "count": made.numel()})
    if bool(differing.any()):
        doubt, place = Verdict(False, numbers=dict(verdict.numbers)), int(differing.flatten().int().argmax())
        verdict.suspect = wrong_at(doubt, NOT_ROUNDED, place, made, eager, reference)
    for _ in range(_RUNS_AT_MOST):
        if not bool(wrong.any()):
            return verdict
        wrong &= in_memory(jittered()).to(made.dtype).expand(made.shape) == exact
    count = int(wrong.sum())
    if not count:
        return verdict
    verdict.numbers["wrong"] = count
    reason = f"{count} of {made.numel()} values differ, and rounding cannot explain it"
    return wrong_at(verdict, reason, int(wrong.flatten().to(torch.int8).argmax()), made, eager, reference)
