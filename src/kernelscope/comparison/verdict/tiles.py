"""What one program has in one tensor, and the other in several: side by side, or in turns group by group.

So are weights of queries, keys and values, what is computed with them, their gradients and their updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

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
    kept = run.matching.kept.tensors
    parts = _Parts(flow, ours, {each.number: run.unmatched[each.number].tensor for each in ours})
    other_parts = _Parts(other, theirs, kept)
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


class _Parts:
    """Values that may be parts of larger ones."""

    def __init__(self, flow: Flow, values: Iterable[Value], tensors: Mapping[int, torch.Tensor]) -> None:
        self._tensors = tensors
        self._by_rest: dict[_Key, list[Value]] = defaultdict(list)
        self._first_numbers: dict[tuple[_Key, int], tuple[list[int], torch.Tensor]] = {}
        for value in values:
            for dim in range(len(value.shape)):
                self._by_rest[_key(flow, value.call, value.shape, dim)].append(value)

    def smaller(self, key: _Key, size: int) -> list[Value]:
        return [each for each in self._by_rest.get(key, ()) if each.shape[key[1]] < size]

    def near(self, key: _Key, block: torch.Tensor, *, is_ours: bool) -> set[int]:
        """Those of the size of a block of which a look does not show that they are others."""
        numbers, first = self._looks(key, block.shape[key[1]])
        if not numbers:
            return set()
        look = _look(block)
        sizes = look.norm() if is_ours else first.norm(dim=1)
        is_near = (first - look).norm(dim=1) <= sizes / 2
        return {number for number, near in zip(numbers, is_near.tolist(), strict=True) if near}

    def _looks(self, key: _Key, length: int) -> tuple[list[int], torch.Tensor]:
        if (key, length) not in self._first_numbers:
            found = [each.number for each in self._by_rest.get(key, ()) if each.shape[key[1]] == length]
            looks = [_look(self._tensors[number]) for number in found]
            self._first_numbers[key, length] = found, torch.stack(looks) if looks else torch.empty(0)
        return self._first_numbers[key, length]


def _look(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1)[:_LOOK].to("cpu", torch.float64)


def _key(flow: Flow, call: int, shape: tuple[int, ...], dim: int) -> _Key:
    return flow.calls[call].turn, dim, (*shape[:dim], *shape[dim + 1 :])


def _tilings(
    run: ReferenceRun, flow: Flow, whole: Value, parts: _Parts, *, is_ours: bool
) -> Iterator[list[int]]:
    """Numbers of the values that make up the whole; a matrix may be stored the other way round."""
    shapes = [whole.shape, whole.shape[::-1]] if len(whole.shape) == 2 else [whole.shape]
    for shape in shapes:
        tensors = _tensors(run, whole, is_ours)
        if shape is not shapes[0]:
            tensors = [each.T for each in tensors]
        for dim, size in enumerate(shape):
            key = _key(flow, whole.call, shape, dim)
            smaller = parts.smaller(key, size)
            if not smaller:
                continue
            for groups, count in ((1, 1), *_interleaved(size, smaller, dim)):
                in_order = partial(_in_order, dim=dim, groups=groups, count=count)
                near = partial(parts.near, key, is_ours=is_ours)
                found = _tiles(run, _Whole(tensors, in_order, dim), smaller, near, is_ours)
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


@dataclass(frozen=True, slots=True)
class _Whole:
    tensors: list[torch.Tensor]  # the value and its replicas
    in_order: Callable[[torch.Tensor], torch.Tensor]
    dim: int

    def blocks(self, start: int, length: int) -> list[torch.Tensor]:
        return [self.in_order(each).narrow(self.dim, start, length) for each in self.tensors]


def _tiles(
    run: ReferenceRun, whole: _Whole, parts: list[Value], near: Callable[[torch.Tensor], set[int]],
    is_ours: bool,
) -> list[int]:  # fmt: skip
    """One part after the other; nothing if one is missing."""
    dim, tensor = whole.dim, whole.in_order(whole.tensors[0])
    start, size, found = 0, tensor.shape[dim], list[int]()
    while start < size:
        may_be: dict[int, set[int]] = {}  # by length
        for part in parts:
            length = part.shape[dim]
            if part.number in found or start + length > size:
                continue
            if length not in may_be:
                may_be[length] = near(tensor.narrow(dim, start, length))
            if part.number in may_be[length] and _is_same(run, whole.blocks(start, length), part, is_ours):
                found.append(part.number)
                start += length
                break
        else:
            return []
    return found if len(found) > 1 else []


def _is_same(run: ReferenceRun, block: list[torch.Tensor], part: Value, is_ours: bool) -> bool:
    """Whether the block of one program is the other's value, but for rounding."""
    expected = run.unmatched[part.number].tensor if not is_ours else block[0]
    other = block[0] if not is_ours else run.matching.kept.tensors[part.number]
    eps = max(part.eps, *(torch.finfo(each.dtype).eps for each in (expected, other)))
    made = Expected(block[0], block[1:], 0.0, eps) if is_ours else run.unmatched[part.number]
    return close_to(made, other, eps, part.tiny).within
