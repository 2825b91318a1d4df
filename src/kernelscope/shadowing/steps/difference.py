"""Whether two graphs compute the same: their outputs, and what they write to their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.small_errors.rounding import widen
from kernelscope.shadowing.regions.second_opinion import judge_whole

from .side import Side


@dataclass(frozen=True, slots=True)
class Difference:
    """The first output that has another value."""

    output: str
    node: str
    verdict: Verdict


@dataclass(slots=True)
class Compared:
    """What a comparison found, and what it had to leave out, with reasons."""

    difference: Difference | None = None
    count: int = 0  # outputs that were compared
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Made:
    """What the other side gives for an output."""

    value: Any
    dtype: torch.dtype | None = None  # None: unknown; `value` may be in float64
    again: Callable[[], Any] | None = None  # the same in its own dtypes


def made_by(side: Side) -> dict[str, Made]:
    """All that this side computes, in float64, with the dtypes that it has in truth."""
    values = {name: side.wide(name) for name in side.outputs}
    return {
        name: Made(value, side.dtype(name), partial(side.eager, name))
        for name, value in values.items()
        if name not in side.left_out
    }


def compare(side: Side, made: Mapping[str, Made], left_out: Mapping[str, str], only: str = "") -> Compared:
    """Compares what was made with what `side` computes in eager, float64, and float64 with small errors."""
    found = Compared(left_out=dict(left_out))
    names = dict.fromkeys((*side.outputs, *made))
    for name in [only] if only else names:
        if name in found.left_out:
            continue
        try:
            verdict = _verdict(side, name, made.get(name))
        except CannotEvaluate as error:
            found.left_out[name] = str(error)
            continue
        if name in side.left_out:
            found.left_out[name] = side.left_out[name]
        elif isinstance(verdict, str):
            found.left_out[name] = verdict
        else:
            found.count += 1
            if verdict.is_wrong and found.difference is None:
                node = side.outputs.get(name)
                found.difference = Difference(name, node.name if isinstance(node, Node) else "", verdict)
                break
    return found


def _verdict(side: Side, name: str, made: Made | None) -> Verdict | str:
    """A verdict, or why there is none."""
    if name.startswith("input "):
        made = made or Made(_untouched(side, name))  # not written to at all: as it came in
        if name not in side.outputs:
            return compared_with_input(side, name, made)
    elif name not in side.outputs or made is None:
        return Verdict(True, reason="it is returned on one side of the step only")
    eager, value = side.eager(name), made.value
    if name in side.left_out:
        return side.left_out[name]
    if not isinstance(eager, torch.Tensor) or not isinstance(value, torch.Tensor):
        return _not_tensors(eager, value)
    known = side.dtype(name)
    if None not in (made.dtype, known) and made.dtype != known:
        return Verdict(True, reason=f"it has dtype {made.dtype} instead of {known}")
    if value.shape != eager.shape:
        return Verdict(True, reason=f"it has shape {list(value.shape)} instead of {list(eager.shape)}")
    value, undefined = value.to(eager.device, eager.dtype), side.undefined(name)

    def defined(found: torch.Tensor) -> torch.Tensor:
        return found if undefined is None else torch.where(undefined, eager.to(found.dtype), found)

    def wide() -> torch.Tensor:
        if not isinstance(found := side.wide(name), torch.Tensor):
            raise CannotEvaluate(side.left_out.get(name, "it has no value in float64"))
        return defined(found)

    def judged(each: torch.Tensor) -> Verdict:
        moved, left = lambda: defined(side.jittered(name)), lambda: side.unwritten(name)
        return judge_whole(
            defined(each), eager, wide, moved, side.eps, unwritten=left, signed_zeros=side.signed_zeros(name)
        )

    verdict = judged(value)
    if not verdict.is_wrong or made.again is None:
        return verdict
    # A step that changes values changes them in each dtype; not everything is right in float64.
    second = made.again()
    if not isinstance(second, torch.Tensor) or second.shape != eager.shape:
        return verdict
    return judged(second.to(eager.device, eager.dtype))


def _untouched(side: Side, name: str) -> Any:
    return next((v for n, v in side.given.items() if f"input {n.name}" == name), None)


def compared_with_input(side: Side, name: str, made: Made) -> Verdict | str:
    """Only the other side writes to this input."""
    before = _untouched(side, name)
    if not isinstance(before, torch.Tensor) or not isinstance(made.value, torch.Tensor):
        return "only one side of the step writes to it"
    if made.value.shape != before.shape:
        return Verdict(True, reason=f"it has shape {list(made.value.shape)} instead of {list(before.shape)}")
    wide = partial(widen, before)
    return judge(made.value.to(before.dtype), before, wide, wide, side.eps)


def _not_tensors(eager: Any, value: Any) -> Verdict | str:
    if eager is None and value is None:
        return Verdict(False, is_bitwise=True)
    if isinstance(eager, int | float | bool) and isinstance(value, int | float | bool):
        return Verdict(eager != value, eager == value, f"it is {value} instead of {eager}")
    if eager is None or value is None:
        tensor = value if eager is None else eager
        if isinstance(tensor, torch.Tensor) and not bool(tensor.count_nonzero()):
            return Verdict(False)  # a gradient of zeros, and none
        return Verdict(True, reason="it is missing on one side of the step")
    return "it is neither a tensor nor a number"
