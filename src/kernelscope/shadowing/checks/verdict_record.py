"""What is found of one buffer, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Jittered = Callable[[], torch.Tensor]
Unwritten = Callable[[], torch.Tensor | None]
WRONG_SIGN = "the sign of a zero is wrong, which 1/x or atan2 would show"
NOT_ROUNDED = "eager rounds each step, and this kernel does not: numbers that are equal in eager differ here"


@dataclass(slots=True)
class Verdict:
    """What was found of one buffer."""

    is_wrong: bool
    is_bitwise: bool = False
    reason: str = ""
    numbers: dict[str, float | int | str] = field(default_factory=dict)
    where: tuple[int, ...] | None = None
    suspect: Verdict | None = None  # not wrong by itself: other than eager's, as float64 explains


def wrong_at(
    verdict: Verdict,
    reason: str,
    place: int,
    made: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
) -> Verdict:
    """Wrong, above all in this element of the flat result."""
    verdict.is_wrong, verdict.reason = True, reason
    verdict.where = tuple(int(n) for n in torch.unravel_index(torch.tensor(place), made.shape))
    values = {"compiled": made, "eager": eager, "float64": reference}
    verdict.numbers |= {name: value.flatten()[place].item() for name, value in values.items()}
    verdict.numbers["elements"] = made.numel()
    return verdict
