"""Values that one program makes at once and the other in steps: the rows of a prefill, token by token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import torch

from .flow.calls_and_values import LEAF, Flow, Value
from .flow.kept_values import KeptValues

_MOST = 4096  # calls of one line: more are not tried


class SeriesIndex:
    """Values of one line and operator, in order: of each line that made several."""

    def __init__(self, flow: Flow, kept: KeptValues) -> None:
        self._kept = kept
        groups: dict[object, list[Value]] = defaultdict(list)
        for value in flow.values:
            if value.call != LEAF:
                call = flow.calls[value.call]
                groups[(call.operator, call.origin, value.argument, value.dtype)].append(value)
        self._groups = [group for group in groups.values() if 1 < len(group) <= _MOST]

    def fitting(self, tensor: torch.Tensor) -> Iterator[tuple[list[Value], torch.Tensor]]:
        """Series that put together have the form of a tensor, and what they make of it."""
        is_float = tensor.is_floating_point()
        for group in self._groups:
            if bool(group[0].eps) != is_float:
                continue
            for parts in _every_nth(group, tensor):
                for whole in self._together(parts, tensor):
                    yield parts, whole

    def _together(self, parts: list[Value], tensor: torch.Tensor) -> Iterator[torch.Tensor]:
        kept = [self._kept.tensors[part.number] for part in parts]
        if sum(part.numel for part in parts) == tensor.numel():
            for outer in _outer_sizes(parts):
                made = torch.cat([each.reshape(outer, -1) for each in kept], 1)
                yield made.reshape(tensor.shape).to(tensor.device)
        elif _are_rows(parts, tensor):
            made, row = tensor.to(kept[0].dtype, copy=True), 0
            for each in kept:
                rows, columns = each.shape[-2:]
                made[..., row : row + rows, :columns] = each.to(made.device)
                row += rows
            yield made


def _every_nth(group: list[Value], tensor: torch.Tensor) -> Iterator[list[Value]]:
    """A line that runs for several layers in each step makes several series."""
    for layers in range(1, len(group) // 2 + 1):
        if len(group) % layers == 0:
            parts = [group[first::layers] for first in range(layers)]
            if _is_whole(parts[0], tensor):
                yield from (each for each in parts if _is_whole(each, tensor))
                return


def _is_whole(parts: list[Value], tensor: torch.Tensor) -> bool:
    return sum(part.numel for part in parts) == tensor.numel() or _are_rows(parts, tensor)


def _are_rows(parts: list[Value], tensor: torch.Tensor) -> bool:
    """Scores of each token with those before it: rows that get longer."""
    shape = tuple(tensor.shape)
    if len(shape) < 2 or any(
        len(p.shape) != len(shape) or p.shape[:-2] != shape[:-2] or p.shape[-1] > shape[-1] for p in parts
    ):
        return False
    grows = all(b.shape[-1] == a.shape[-1] + b.shape[-2] for a, b in pairwise(parts))
    return grows and sum(part.shape[-2] for part in parts) == shape[-2]


def _outer_sizes(parts: list[Value]) -> list[int]:
    """How many rows, such as those of a batch, each part may have a share of."""
    found, size = [1], 1
    for length in parts[0].shape:
        size *= length
        if size not in found and all(part.numel % size == 0 for part in parts):
            found.append(size)
    return found
