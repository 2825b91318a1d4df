"""What both programs have in one tensor, with its rows in another order, such as heads in turns in a weight.

So are weights of queries, keys and values, what is computed with them, their gradients and their updates. It
is right only if what the programs compute from it is the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch

from kernelscope.comparison.flow.calls_and_values import LEAF, Flow, Value
from kernelscope.comparison.matching import Expected, close_to
from kernelscope.comparison.reference import ReferenceRun

_FEW = 16  # numbers
_MOST_ROWS = 1 << 16
_AT_ONCE = 1024  # rows
_PROJECTED = 16  # numbers of a row by which others are ruled out
_MOST_TRIED = 16
_MOST_STEPS = 48  # that one program takes and the other does not


@dataclass(frozen=True, slots=True)
class _Reordered:
    """A value of the reference, one of the other program, and which rows of the first it has."""

    ours: int
    theirs: int
    order: tuple[int, ...]


def reordered(run: ReferenceRun, here: Container[int], there: Container[int]) -> tuple[set[int], set[int]]:
    """Numbers of such values; `here` and `there` have a counterpart."""
    found = list(_pairs(run, here, there))
    while True:
        ours, theirs = {each.ours for each in found}, {each.theirs for each in found}
        kept = [each for each in found if _is_right(run, each, found, (here, ours), (there, theirs))]
        if len(kept) == len(found):
            return ours, theirs
        found = kept


def _pairs(run: ReferenceRun, here: Container[int], there: Container[int]) -> Iterator[_Reordered]:
    other, kept = run.matching.flow, run.matching.kept
    theirs: dict[int, list[Value]] = defaultdict(list)
    for value in other.values:
        if value.number not in there and _is_data(value):
            theirs[value.numel].append(value)
    taken = set[int]()
    for number, expected in [*run.lost_leaves.items(), *run.unmatched.items()]:
        value = run.flow.values[number]
        if number in here or not _is_data(value):
            continue
        size = _rms(expected.tensor)
        alike = (
            each for each in theirs[value.numel]
            if each.number not in taken and _is_of_turn(run.flow, value, other, each)
            and abs(kept.sketches[each.number].rms - size) <= (1e-3 + 4 * each.eps) * size
        )  # fmt: skip
        for each in islice(alike, _MOST_TRIED):
            order = _order_of(expected, kept.tensors[each.number], each)
            if order is not None:
                taken.add(each.number)
                yield _Reordered(number, each.number, order)
                break


def _is_data(value: Value) -> bool:
    return bool(value.eps) and not value.dtype.startswith("complex") and value.numel >= _FEW


def _is_of_turn(flow: Flow, value: Value, other: Flow, theirs: Value) -> bool:
    if LEAF in (value.call, theirs.call):
        return value.call == LEAF or flow.calls[value.call].turn == 0
    return flow.calls[value.call].turn == other.calls[theirs.call].turn


def _order_of(expected: Expected, kept: torch.Tensor, theirs: Value) -> tuple[int, ...] | None:
    other = kept.to(expected.tensor.device)
    for rows, count in _unfolded(expected.tensor.shape):
        ours = _rows(expected.tensor, rows)
        for others, other_count in _unfolded(other.shape):
            if other_count != count:
                continue
            order = _closest_rows(ours, _rows(other, others))
            if order is None:
                continue
            replicas = [_rows(each, rows)[order] for each in expected.replicas]
            own = replace(expected, tensor=ours[order], replicas=replicas)
            if close_to(own, _rows(other, others), theirs.eps, theirs.tiny).within:
                return tuple(order.tolist())
    return None


def _unfolded(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], int]]:
    """From which dimension to which its rows may be, and how many these are."""
    for first in range(len(shape)):
        for last in range(first + 1, len(shape) + 1):
            count = math.prod(shape[first:last])
            if 1 < count <= _MOST_ROWS and count < math.prod(shape):
                yield (first, last), count


def _rows(tensor: torch.Tensor, which: tuple[int, int]) -> torch.Tensor:
    first, last = which
    dims = [*range(first, last), *range(first), *range(last, tensor.dim())]
    return tensor.permute(dims).reshape(math.prod(tensor.shape[first:last]), -1)


def _closest_rows(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor | None:
    """For each row of the other program the reference's that is closest, if that is an order."""
    a, b = ours.double(), theirs.double()
    if not bool(a.isfinite().all() and b.isfinite().all()):
        return None
    if a.shape[1] > _PROJECTED:
        drawn = torch.Generator().manual_seed(0)
        onto = torch.randn(a.shape[1], _PROJECTED, generator=drawn, dtype=torch.float64).to(a.device)
        a, b = a @ onto, b @ onto
    starts = range(0, len(b), _AT_ONCE)
    found = torch.cat([torch.cdist(b[first : first + _AT_ONCE], a).argmin(1) for first in starts])
    if len(set(found.tolist())) < len(found):
        return None
    return found


def _is_right(
    run: ReferenceRun, pair: _Reordered, pairs: list[_Reordered],
    ours: tuple[Container[int], set[int]], theirs: tuple[Container[int], set[int]],
) -> bool:  # fmt: skip
    """Whether what is computed from it has counterparts, or it replaces what had the same order before."""
    flow, other = run.flow, run.matching.flow
    ends = _is_end(flow, pair.ours), _is_end(other, pair.theirs)
    if all(ends):
        orders = {(each.ours, each.theirs): each.order for each in pairs}
        before = [(a, b) for a in _before(flow, pair.ours) for b in _before(other, pair.theirs)]
        return any(orders.get(each) == pair.order for each in before)
    return _leads_well(flow, pair.ours, ours) and _leads_well(other, pair.theirs, theirs)


def _is_end(flow: Flow, number: int) -> bool:
    return not any(_results_of(flow, number))


def _leads_well(flow: Flow, number: int, known: tuple[Container[int], set[int]]) -> bool:
    """Whether all that is computed from it has a counterpart, perhaps after a few steps."""
    todo, seen, is_known = [number], {number}, False
    while todo:
        for made in _results_of(flow, todo.pop()):
            right = {n for n in made if n in known[0] or n in known[1]}
            is_known |= bool(right)
            new = [n for n in made if n not in right | seen]
            if any(_is_end(flow, n) and not right for n in new) or len(seen) > _MOST_STEPS:
                return False
            todo += new
            seen.update(new)
    return is_known


def _results_of(flow: Flow, number: int) -> Iterator[list[int]]:
    """Of each call that reads it."""
    for reader in flow.values[number].readers:
        yield [n for n in flow.calls[reader].writes if flow.values[n].eps]


def _before(flow: Flow, number: int) -> set[int]:
    """What was in its memory before, and what that is a copy of."""
    todo, seen = list(flow.replaced.get(number, ())), set[int]()
    while todo:
        each = todo.pop()
        if each not in seen:
            seen.add(each)
            todo += [*flow.replaced.get(each, ()), *flow.values[each].sources]
    return seen


def _rms(tensor: torch.Tensor) -> float:
    return math.sqrt(float(tensor.double().square().mean()))
