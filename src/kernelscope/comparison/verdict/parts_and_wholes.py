"""What one program has in one memory, such as all of its weights, and the other in several tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch

from kernelscope.comparison.closeness import Closeness
from kernelscope.comparison.differing_inputs import MARGIN
from kernelscope.comparison.flow.calls_and_values import LEAF, Flow, Value
from kernelscope.comparison.flow.lines import of_one_line
from kernelscope.comparison.matching import Expected, close_to
from kernelscope.comparison.reference import ReferenceRun
from kernelscope.comparison.replicas import COUNT

from .blame import Unmatched, with_parts
from .reordered import reordered
from .tiles import tiled

_Pair = tuple[list[Value], list[Value]]  # of the reference, and of the other: one of them is one value


def same_together(run: ReferenceRun) -> tuple[set[int], set[int]]:
    """Values of the one and of the other without a counterpart of their own, which together are the same."""
    here, there = tiled(run)
    ours, theirs = (_made(flow) for flow in (run.flow, run.matching.flow))
    for ours_, theirs_ in _pairs(run, ours, theirs):
        if _are_new(run, ours_, theirs_) and (found := _compared(run, ours_, theirs_)) and found.within:
            here.update(v.number for v in ours_)
            there.update(v.number for v in theirs_)
    placed = with_parts(run.matching.flow, run.matching.claimed)
    ours_again, theirs_again = reordered(run, here | run.matched.keys(), there | placed)
    return here | ours_again, there | theirs_again


def same_in_sum(run: ReferenceRun) -> set[int]:
    """What the other program computes of each part of a batch, and which is together what both have.

    The reference has one value where the other scales its loss by the number of parts.
    """
    kept, found = run.matching.kept.tensors, set[int]()
    for ours, theirs in run.matched.items():
        value, call = run.matching.flow.values[theirs], run.flow.values[ours].call
        if not value.eps or call == LEAF:
            continue
        for parts in run.matching.sums.fitting(run.flow.calls[call], kept[theirs], any_operator=True):
            if found.issuperset(part.number for part in parts):
                continue
            total = torch.stack([kept[part.number].to(kept[theirs].dtype) for part in parts]).sum(0)
            expected = Expected(kept[theirs], [kept[theirs]] * COUNT, 0.0, value.eps)
            if run.matching.compare_tensor(total, parts, expected).within:
                found.update(part.number for part in parts)
    return found


def differing_together(run: ReferenceRun, here: Unmatched, there: Unmatched) -> tuple[set[int], set[int]]:
    """The same of the ends of the programs, where they differ."""
    new_here, new_there = ({v.number for v in each.ends()} for each in (here, there))
    ours, theirs = set[int](), set[int]()
    for ours_, theirs_ in _pairs(run, here.all_ends(), there.all_ends()):
        found = _compared(run, ours_, theirs_) if _are_new(run, ours_, theirs_) else None
        if found is not None and found.excess > MARGIN:
            ours |= new_here.intersection(v.number for v in ours_)
            theirs |= new_there.intersection(v.number for v in theirs_)
    return ours, theirs


def _made(flow: Flow) -> list[Value]:
    return [value for value in flow.values if value.call != LEAF]


def _pairs(run: ReferenceRun, ours: list[Value], theirs: list[Value]) -> Iterator[_Pair]:
    """Several values of one line, and one of as many numbers, between the same backward passes."""
    flow, other = run.flow, run.matching.flow
    wholes, other_wholes = _by_size(ours), _by_size(theirs)
    for parts in _together(flow, ours):
        for whole in other_wholes[sum(part.numel for part in parts)]:
            if flow.calls[parts[0].call].turn == other.calls[whole.call].turn:
                yield parts, [whole]
    for parts in _together(other, theirs):
        for whole in wholes[sum(part.numel for part in parts)]:
            if other.calls[parts[0].call].turn == flow.calls[whole.call].turn:
                yield [whole], parts


def _together(flow: Flow, values: list[Value]) -> Iterator[list[Value]]:
    by_turn: dict[int, list[Value]] = defaultdict(list)
    for value in values:
        if value.eps:
            by_turn[flow.calls[value.call].turn].append(value)
    for group in by_turn.values():
        yield from of_one_line(flow, group)


def _by_size(values: Iterable[Value]) -> dict[int, list[Value]]:
    found: dict[int, list[Value]] = defaultdict(list)
    for value in values:
        if value.eps:
            found[value.numel].append(value)
    return found


def _are_new(run: ReferenceRun, ours: list[Value], theirs: list[Value]) -> bool:
    """Whether in both programs something of it has no counterpart."""
    is_lost = any(value.number in run.unmatched for value in ours)
    return is_lost and any(value.number not in run.matching.claimed for value in theirs)


def _compared(run: ReferenceRun, ours: list[Value], theirs: list[Value]) -> Closeness | None:
    known = [each for value in ours if (each := _expected(run, value)) is not None]
    if len(known) < len(ours):
        return None
    tensor = torch.cat([each.tensor.flatten() for each in known])
    replicas = [
        torch.cat([part.flatten() for part in parts])
        for parts in zip(*(each.replicas for each in known), strict=False)
    ]
    kept, calls = run.matching.kept.tensors, run.matching.flow.calls
    other = torch.cat([kept[value.number].flatten() for value in theirs]).to(tensor.device)
    eps = max(max(value.eps, calls[value.call].eps) for value in theirs)
    reach, coarse = max(each.reach for each in known), max(each.coarse for each in known)
    return close_to(Expected(tensor, replicas, reach, coarse), other, eps, theirs[0].tiny)


def _expected(run: ReferenceRun, value: Value) -> Expected | None:
    """What the reference has there: if it was found, what the other program has."""
    if value.number in run.unmatched:
        return run.unmatched[value.number]
    close, other = run.close.get(value.number), run.matched.get(value.number)
    if other is None or (close is not None and close.layout is not None):
        return None
    tensor = run.matching.kept.tensors[other]
    return Expected(tensor, [tensor] * COUNT, 0.0, 0.0)
