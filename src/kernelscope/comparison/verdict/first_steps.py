"""Of a program that makes in steps what the reference makes at once: steps in which it is still right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from operator import le

import torch

from kernelscope.comparison.flow.calls_and_values import LEAF, Value
from kernelscope.comparison.matching import Expected, close_to
from kernelscope.comparison.reference import ReferenceRun


def right_in_first_steps(run: ReferenceRun) -> set[int]:
    """Values of the other program that are a part of what the reference has and was not found as a whole."""
    new: dict[str, list[Value]] = defaultdict(list)
    for value in run.matching.flow.values:
        is_new = value.call != LEAF and value.number not in run.matching.claimed
        if is_new and run.matching.says_much(value.number):
            new[run.matching.flow.calls[value.call].operator].append(value)
    return _steps(run) | _prompts(run, new) | _scores_of_a_cache(run, new)


def _steps(run: ReferenceRun) -> set[int]:
    """Of each series, up to the first step that differs."""
    found, wrong = set[int](), set[int]()
    for number, expected in run.unmatched.items():
        operator = run.flow.calls[run.flow.values[number].call].operator
        tensor = expected.tensor.contiguous()
        for parts, cut in run.matching.series.parts_of(operator, expected.tensor, run.matching.claimed):
            blocks = cut(tensor)
            if not _may_be_same(run, parts[0], blocks[0]):
                continue  # most series: their replicas need not be cut
            shaken = [cut(each.contiguous()) for each in expected.replicas]
            for i, part in enumerate(parts):
                block = replace(expected, tensor=blocks[i], replicas=[each[i] for each in shaken])
                if not _is_same(run, part, block):
                    wrong.update(
                        [part.number] if i else []
                    )  # it may look like the first step of another series
                    break
                found.add(part.number)
    return found - wrong


def _prompts(run: ReferenceRun, new: Mapping[str, list[Value]]) -> set[int]:
    """What was made of the first rows alone: a prompt has a mask, later tokens need none."""
    matching = run.matching
    found = set[int]()
    for number, expected in run.unmatched.items():
        whole = run.flow.values[number]
        operator = run.flow.calls[whole.call].operator
        series = (
            matching.series.parts_of(operator, expected.tensor, matching.claimed) if new.get(operator) else ()
        )
        in_steps = {part.number for parts, _ in series for part in parts}
        for value in new.get(operator, ()):
            if _is_smaller(value, whole) and value.number not in in_steps:
                rows = tuple(slice(length) for length in value.shape)
                shaken = [each[rows] for each in expected.replicas]
                if _is_same(run, value, replace(expected, tensor=expected.tensor[rows], replicas=shaken)):
                    found.add(value.number)
    return found


def _scores_of_a_cache(run: ReferenceRun, new: Mapping[str, list[Value]]) -> set[int]:
    """Of a cache of fixed size: rows wider than the reference's, by places that nothing is in yet."""
    found = set[int]()
    for number, expected in run.unmatched.items():
        whole = run.flow.values[number]
        if len(whole.shape) < 2 or not whole.eps or whole.shape[-2] != whole.shape[-1]:
            continue
        first = 0
        for value in new.get(run.flow.calls[whole.call].operator, ()):
            if value.number in found or not _is_wider(value, whole):
                continue
            last = first + value.shape[-2]
            rows = (..., slice(first, last), slice(last))
            shaken = [each[rows] for each in expected.replicas]
            block = replace(expected, tensor=expected.tensor[rows], replicas=shaken)
            part = run.matching.kept.tensors[value.number][..., :last]
            if last <= whole.shape[-2] and _is_same(run, value, block, part):
                found.add(value.number)
                first = last
    return found


def _is_wider(value: Value, whole: Value) -> bool:
    if len(value.shape) != len(whole.shape) or not value.eps or value.shape[:-2] != whole.shape[:-2]:
        return False
    return value.shape[-2] < whole.shape[-2] and value.shape[-1] > whole.shape[-1]


def _is_smaller(value: Value, whole: Value) -> bool:
    if len(value.shape) != len(whole.shape) or bool(value.eps) != bool(whole.eps):
        return False
    return value.shape != whole.shape and all(map(le, value.shape, whole.shape))


def _is_same(run: ReferenceRun, value: Value, block: Expected, part: torch.Tensor | None = None) -> bool:
    if not _may_be_same(run, value, block.tensor, part):
        return False
    kept = run.matching.kept.tensors[value.number] if part is None else part
    kept = kept.to(block.tensor.device).reshape(block.tensor.shape)
    return close_to(block, kept, value.eps, value.tiny).within


def _may_be_same(
    run: ReferenceRun, value: Value, block: torch.Tensor, part: torch.Tensor | None = None
) -> bool:
    """Of most values one look at how far they are from the block shows that they are others."""
    kept = run.matching.kept.tensors[value.number] if part is None else part
    if kept.is_complex() != block.is_complex():
        return False
    if not value.eps:
        return True
    apart = kept.to(block.device).reshape(block.shape).to(block.dtype) - block
    return not float(apart.norm()) > float(block.norm()) / 2
