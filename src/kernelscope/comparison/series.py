"""Values that one program makes at once and the other in steps: the rows of a prefill, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import torch

from .flow.calls_and_values import LEAF, Flow, Value
from .flow.kept_values import KeptValues
from .flow.lines import of_one_line

_MOST = 4096  # calls of one line: more are not tried
_MOST_ROWS = 1024  # of a batch


Cut = Callable[[torch.Tensor], Sequence[torch.Tensor]]


class SeriesIndex:
    """Values of one line and operator, in order: of each line that made several."""

    def __init__(self, flow: Flow, kept: KeptValues) -> None:
        self._flow, self._kept = flow, kept
        made = [value for value in flow.values if value.call != LEAF]
        self._groups = [group for group in of_one_line(flow, made) if len(group) <= _MOST]

    def fitting(self, tensor: torch.Tensor) -> Iterator[tuple[list[Value], torch.Tensor]]:
        """Series that put together have the form of a tensor, and what they make of it."""
        for parts in self._of_form(tensor):
            kept = [self._kept.tensors[part.number] for part in parts]
            for cut in _cuts(parts, tensor):
                # Of scores, what is masked: no part has it.
                whole = tensor.to(kept[0].dtype, copy=True, memory_format=torch.contiguous_format)
                for block, each in zip(cut(whole), kept, strict=True):
                    block.copy_(each.reshape(block.shape))
                yield parts, whole

    def parts_of(self, operator: str, tensor: torch.Tensor) -> Iterator[tuple[list[Value], Cut]]:
        """Series of an operator that have the form of a tensor, and how they would be cut out of it."""
        for parts in self._of_form(tensor):
            if self._flow.calls[parts[0].call].operator == operator:
                for cut in _cuts(parts, tensor):
                    yield parts, cut

    def _of_form(self, tensor: torch.Tensor) -> Iterator[list[Value]]:
        is_float = tensor.is_floating_point()
        for group in self._groups:
            if bool(group[0].eps) == is_float:
                yield from _every_nth(group, tensor)


def _cuts(parts: list[Value], tensor: torch.Tensor) -> Iterator[Cut]:
    """Ways in which a contiguous tensor consists of parts."""
    if sum(part.numel for part in parts) == tensor.numel():
        for outer in _outer_sizes(parts):
            widths = [part.numel // outer for part in parts]
            yield partial(_columns_of, outer, widths)
    elif _are_rows(parts, tensor):
        yield partial(_rows_of, parts)


def _columns_of(outer: int, widths: list[int], whole: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.split(whole.reshape(outer, -1), widths, 1)


def _rows_of(parts: list[Value], whole: torch.Tensor) -> list[torch.Tensor]:
    found, row = [], 0
    for part in parts:
        rows, columns = part.shape[-2:]
        found.append(whole[..., row : row + rows, :columns])
        row += rows
    return found


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
    # Rows of all sequences one after the other, of which a prompt has several and a step has one.
    flat = math.gcd(*(part.shape[0] for part in parts if part.shape))
    return found + [n for n in range(2, min(flat, _MOST_ROWS) + 1) if flat % n == 0 and n not in found]
