"""What one program has in one tensor, and the other in several: side by side, or in turns group by group.

So are weights of queries, keys and values, what is computed with them, their gradients and their updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from kernelscope.comparison.flow.calls_and_values import LEAF, Flow, Value
from kernelscope.comparison.matching import Expected, close_to
from kernelscope.comparison.reference import ReferenceRun

_FEW = 16  # numbers
_LOOK = 256  # numbers that show at once that two blocks are others
_MOST_GROUPS = 12
_Key = tuple[int, int, tuple[int, ...]]  # passes that had begun; the dimension that is divided; other sizes


def tiled(run: ReferenceRun) -> tuple[set[int], set[int]]:
    """Values of either program without a counterpart of their own, of which some make up another."""
    flow, other = run.flow, run.matching.flow
    ours = [flow.values[number] for number in run.unmatched if _is_data(flow.values[number])]
    theirs = [v for v in other.values if v.number not in run.matching.claimed and _is_data(v)]
    here, there = set[int](), set[int]()
    parts, other_parts = _by_rest(flow, ours), _by_rest(other, theirs)
    for whole in theirs:
        found = next(_tilings(run, other, whole, parts, is_ours=False), None)
        if found:
            there.add(whole.number)
            here.update(found)
    for whole in ours:
        if whole.number not in here and (
            found := next(_tilings(run, flow, whole, other_parts, is_ours=True), None)
        ):
            here.add(whole.number)
            there.update(found)
    return here, there


def _is_data(value: Value) -> bool:
    is_real = bool(value.eps) and not value.dtype.startswith("complex")
    return is_real and value.call != LEAF and value.numel >= _FEW and bool(value.shape)


def _by_rest(flow: Flow, values: Iterable[Value]) -> dict[_Key, list[Value]]:
    found: dict[_Key, list[Value]] = defaultdict(list)
    for value in values:
        for dim in range(len(value.shape)):
            found[_key(flow, value.call, value.shape, dim)].append(value)
    return found


def _key(flow: Flow, call: int, shape: tuple[int, ...], dim: int) -> _Key:
    return flow.calls[call].turn, dim, (*shape[:dim], *shape[dim + 1 :])


def _tilings(
    run: ReferenceRun, flow: Flow, whole: Value, parts: dict[_Key, list[Value]], *, is_ours: bool
) -> Iterator[list[int]]:
    """Numbers of the values that make up the whole; a matrix may be stored the other way round."""
    shapes = [whole.shape, whole.shape[::-1]] if len(whole.shape) == 2 else [whole.shape]
    for shape in shapes:
        tensors = _tensors(run, whole, is_ours)
        if shape is not shapes[0]:
            tensors = [each.T for each in tensors]
        for dim, size in enumerate(shape):
            key = _key(flow, whole.call, shape, dim)
            smaller = [each for each in parts.get(key, ()) if each.shape[dim] < size]
            if not smaller:
                continue
            for groups, count in ((1, 1), *_interleaved(size, smaller, dim)):
                blocks = [_in_order(each, dim, groups, count) for each in tensors]
                found = _tiles(run, blocks, smaller, dim, is_ours)
                if found:
                    yield found


def _interleaved(size: int, smaller: list[Value], dim: int) -> list[tuple[int, int]]:
    """In how many groups, and parts of each, a dimension may be divided."""
    found = []
    for each in sorted({part.shape[dim] for part in smaller}, reverse=True):
        if size % each == 0:
            found += [(groups, size // each) for groups in range(2, each + 1) if each % groups == 0]
    return found[:_MOST_GROUPS]


def _tensors(run: ReferenceRun, whole: Value, is_ours: bool) -> list[torch.Tensor]:
    """The value and its replicas."""
    if is_ours:
        return [run.unmatched[whole.number].tensor, *run.unmatched[whole.number].replicas]
    return [run.matching.kept.tensors[whole.number]]


def _in_order(tensor: torch.Tensor, dim: int, groups: int, count: int) -> torch.Tensor:
    """With the parts of all groups put together."""
    if groups == 1:
        return tensor
    before, after = tensor.shape[:dim], tensor.shape[dim + 1 :]
    sizes = (*before, groups, count, tensor.shape[dim] // (groups * count), *after)
    return tensor.reshape(sizes).transpose(dim, dim + 1).reshape(tensor.shape)


def _tiles(
    run: ReferenceRun, whole: list[torch.Tensor], parts: list[Value], dim: int, is_ours: bool
) -> list[int]:
    """One part after the other; nothing if one is missing."""
    start, size, found = 0, whole[0].shape[dim], list[int]()
    while start < size:
        for part in parts:
            length = part.shape[dim]
            if part.number in found or start + length > size:
                continue
            if _is_same(run, [each.narrow(dim, start, length) for each in whole], part, is_ours):
                found.append(part.number)
                start += length
                break
        else:
            return []
    return found if len(found) > 1 else []


def _is_same(run: ReferenceRun, block: list[torch.Tensor], part: Value, is_ours: bool) -> bool:
    """Whether the block of one program is the other's value, but for rounding."""
    kept = run.matching.kept.tensors
    expected = run.unmatched[part.number].tensor if not is_ours else block[0]
    other = block[0] if not is_ours else kept[part.number]
    a, b = (each.reshape(-1)[:_LOOK].double() for each in (expected, other.to(expected.device)))
    if not float((a - b).norm()) <= float(a.norm()) / 2:
        return False
    eps = max(part.eps, *(torch.finfo(each.dtype).eps for each in (expected, other)))
    if is_ours:
        made = Expected(block[0], block[1:], 0.0, eps)
    else:
        made = replace(run.unmatched[part.number])
    return close_to(made, other, eps, part.tiny).within
