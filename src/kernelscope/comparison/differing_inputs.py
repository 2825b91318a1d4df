"""Inputs that differ by more than rounding explains, of results that do not.

The reference's operator is run on the other program's input. If that explains the other program's result
better than the reference's own input does, rounding has absorbed the rest of an error: a wrong term of a sum
may be smaller than one rounding of the sum. If it makes the same result, as a softmax does of numbers that
are all moved by one, or another one, for which the other program makes up, the difference is harmless.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch

from .flow.calls_and_values import LEAF, SERIES, Call, Flow, Value, alias_of
from .matching import Expected, Matching
from .second_opinion import same_result
from .series import Cut

MARGIN = 2.0  # times what rounding explains: it was measured a few times only
_COARSE = 1e-4  # a coarser rounding of the other program is that of half precision
_FINE = 1e-5  # a finer one of the reference is that of float32
_BETTER = 0.8  # of what the reference's own input leaves unexplained
_FAR = 8.0  # times what is left: no rounding
_QUITE = 16.0  # roundings of an element
_SAME = 256  # roundings of the reference


@dataclass(frozen=True, slots=True)
class Lost:
    """A value of the reference that was not found, and the place in which it was made."""

    number: int
    place: torch.Tensor  # in its memory, which may hold something else since
    expected: Expected


@dataclass(frozen=True, slots=True)
class Effect:
    """Of the other program's value in the place of the reference's."""

    wrong: list[int]  # the other's values that differ in truth, by number
    is_harmless: bool = False


_UNKNOWN = Effect([])


def effect_of(
    matching: Matching, launch: Launch, call: Call, lost: Lost, before: torch.Tensor, result: torch.Tensor,
    other: Value,
) -> Effect:  # fmt: skip
    """What it makes of the reference's result that the other program has another input.

    `before` is what the reference made of it, `result` the tensor that it was in, and `other` what stands for
    it in the other program.
    """
    eps = torch.finfo(result.dtype).eps
    read = _read_instead(matching.flow, call, lost.number, other)
    if not read or any(part.number in matching.claimed for part in read):
        return _UNKNOWN
    wanted = _wide(matching.kept.tensors[other.number].reshape(result.shape).to(result.device))
    own = _wide(before)
    left, size = _rms(wanted - own), _rms(own)
    for whole, wrong in _wholes(matching, read, lost.expected):
        unread = _only_unread(matching, read, lost.expected, whole)
        again = None if unread is None else _run_with(launch, lost.place, unread, result)
        if again is not None and _rms(_wide(again) - own) <= _SAME * eps * size:
            return Effect([], is_harmless=True)
        again = _run_with(launch, lost.place, whole, result)
        if again is None:
            continue
        moved, rest = _rms(_wide(again) - own), _rms(wanted - _wide(again))
        if moved <= _SAME * eps * size:
            return Effect([], is_harmless=True)
        if len(read) == 1 and rest > _FAR * max(left, other.eps * size):
            return Effect([], is_harmless=True)
        if other.eps > _COARSE and eps < _FINE and rest < _BETTER * left:
            return Effect(wrong)
    return _UNKNOWN


def _read_instead(flow: Flow, call: Call, number: int, other: Value) -> list[Value]:
    """What the other program's calls of the same operator read there."""
    if other.call == LEAF:
        return []
    made_by = flow.calls[other.call]
    calls = [flow.calls[i] for i in made_by.parts] if made_by.kind == SERIES else [made_by]
    if any((each.operator, len(each.reads)) != (call.operator, len(call.reads)) for each in calls):
        return []
    place = call.reads.index(number)
    found = [flow.values[each.reads[place]] for each in calls]
    return found if all(part.eps for part in found) else []


def _wholes(
    matching: Matching, parts: list[Value], expected: Expected
) -> Iterator[tuple[torch.Tensor, list[int]]]:
    """What they are together, in each way that has the form of what was expected; which of them differ."""
    if len(parts) == 1 and parts[0].numel == expected.tensor.numel():
        if matching.compare_unmasked(parts[0], expected).excess > MARGIN:
            kept = matching.kept.tensors[parts[0].number].to(expected.tensor.device)
            yield kept.reshape(expected.tensor.shape), [parts[0].number]
    elif len(parts) > 1:
        for whole, cut in matching.series.put_together(parts, expected.tensor):
            if matching.compare_tensor(whole, parts, expected).excess > MARGIN:
                yield whole, _differing(matching, parts, expected, cut)


def _only_unread(
    matching: Matching, parts: list[Value], expected: Expected, whole: torch.Tensor
) -> torch.Tensor | None:
    """The reference's value with what is quite different in the other's, if all the rest is the same.

    So are scores of tokens that a cache of fixed size does not hold yet, and that are masked afterwards.
    """
    value, other = expected.tensor, whole.to(expected.tensor.device, expected.tensor.dtype)
    spread = parts[0].eps * value.abs()
    for replica in expected.replicas:
        spread = torch.maximum(spread, (replica - value).abs())
    is_far = (other - value).abs() > _QUITE * spread
    rest = torch.where(is_far, value, other)
    if not bool(is_far.any()) or matching.compare_tensor(rest, parts, expected).excess > MARGIN:
        return None
    return torch.where(is_far, other, value)


def _differing(matching: Matching, parts: list[Value], expected: Expected, cut: Cut) -> list[int]:
    """Steps that are still right, such as that of the first token, made none of the difference."""
    blocks = cut(expected.tensor.contiguous())
    shaken = [cut(each.contiguous()) for each in expected.replicas]
    found = []
    for i, part in enumerate(parts):
        kept = matching.kept.tensors[part.number].to(blocks[i].device).reshape(blocks[i].shape)
        block = replace(expected, tensor=blocks[i], replicas=[each[i] for each in shaken])
        if not matching.compare_tensor(kept, [part], block).within:
            found.append(part.number)
    return found


def _run_with(
    launch: Launch, place: torch.Tensor, value: torch.Tensor, result: torch.Tensor
) -> torch.Tensor | None:
    """The operator's result with another value in a place of its memory."""
    storage: Any = place.untyped_storage()
    copy = storage.clone()
    alias_of(place, copy).copy_(value)
    key = BUS.storages.of(place).id

    def moved(part: Any) -> Any:
        is_there = isinstance(part, torch.Tensor) and BUS.storages.of(part).id == key
        return alias_of(part, copy) if is_there else part

    args, kwargs = tree_map(moved, (launch.args, launch.kwargs))
    return same_result(launch, result, launch.func(*args, **kwargs))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64).nan_to_num(0.0, 0.0, 0.0)


def _rms(tensor: torch.Tensor) -> float:
    return math.sqrt(float(tensor.square().mean())) if tensor.numel() else 0.0
