"""Numbers that calls were given, such as an epsilon: another one makes a difference that rounding may hide.

Where both programs run the same operator on the same values and its results are the same but for rounding,
the numbers tell what the values cannot. How much the other number changes is measured in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from kernelscope.comparison.rows_of_scores import MASKED
from kernelscope.comparison.second_opinion import may_run_again, same_result
from kernelscope.probes.launch import Launch

from .calls_and_values import Call
from .numbers_of_calls import Number, by_name

_ROUNDINGS = 4.0  # of a number that may have been read from a tensor
_SEEN = 16 * torch.finfo(torch.float32).eps  # what rounding in float32 does not explain
_MAY_DO_NOTHING = ("clamp", "clamp_min", "clamp_max", "masked_fill", "fill", "threshold", "nan_to_num")
_OF_DTYPES = frozenset(
    float(number)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for info in (torch.finfo(dtype),)
    for number in (info.eps, info.tiny, info.max, info.min)
)


@dataclass(frozen=True, slots=True)
class OtherNumber:
    """Of a call that does the same in both programs, and was given another number in one."""

    call: int  # of the reference
    theirs: int
    name: str
    number: Number  # of the other program
    reference: Number
    effect: float | None  # rms, relative; none: not measured, because the call overwrites what it reads
    noise: float


def other_number(
    launch: Launch, ours: Call, theirs: Call, tensor: torch.Tensor, noise: float
) -> OtherNumber | None:
    """The first that differs, if it makes a difference; both calls do the same on the same values."""
    pairs = dict(ours.numbers), dict(theirs.numbers)
    if pairs[0].keys() != pairs[1].keys():
        return None
    eps = max(ours.eps, theirs.eps)
    differing = {name: pairs[1][name] for name in pairs[0] if _differ(pairs[0][name], pairs[1][name], eps)}
    if not differing:
        return None
    effect = _effect(launch, differing, tensor) if may_run_again(launch) else None
    if (effect is None and ours.operator in _MAY_DO_NOTHING) or (effect is not None and effect <= _SEEN):
        return None
    name = next(iter(differing))
    return OtherNumber(ours.index, theirs.index, name, pairs[1][name], pairs[0][name], effect, noise)


def _differ(ours: Number, theirs: Number, eps: float) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours != theirs
    if any(math.isinf(n) or math.isnan(n) or n <= MASKED or n in _OF_DTYPES for n in (ours, theirs)):
        return False  # a mask, or what belongs to a dtype
    return abs(ours - theirs) > _ROUNDINGS * eps * max(abs(ours), abs(theirs))


def _effect(launch: Launch, numbers: Mapping[str, Number], tensor: torch.Tensor) -> float | None:
    """Of these numbers in the place of its own: how far the result moves, in float64."""
    named = tree_map(_wide, by_name(_schema_of(launch), launch.args, launch.kwargs))
    try:
        own = same_result(launch, tensor, launch.func(**named))
        other = same_result(launch, tensor, launch.func(**named | numbers))
    except Exception:  # an operator that does not compute in float64
        return None
    if own is None or other is None or own.shape != other.shape:
        return None
    if not own.is_floating_point():
        return float((own != other).double().mean())
    finite = own.isfinite() & other.isfinite()
    size = float(own[finite].norm())
    apart = float((other - own)[finite].norm())
    return apart / size if size else float(apart > 0)


def _schema_of(launch: Launch) -> Any:
    return getattr(launch.func, "_schema", None)


def _wide(part: Any) -> Any:
    return part.to(torch.float64) if isinstance(part, torch.Tensor) and part.is_floating_point() else part
