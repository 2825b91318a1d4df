"""Values that one program makes at once and the other in steps: the rows of a prefill, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial

import torch

from .flow.calls_and_values import LEAF, Flow, Value
from .flow.kept_values import KeptValues
from .flow.steps_of_lines import steps_of_lines
from .rows_of_scores import Rows, rows_of

_MOST_ROWS = 1024  # of a batch


Cut = Callable[[torch.Tensor], Sequence[torch.Tensor]]


class SeriesIndex:
    """Values of one line and operator, in order: of each line that made several."""

    def __init__(self, flow: Flow, kept: KeptValues) -> None:
        self._kept = kept
        self._operators = [flow.calls[value.call].operator for value in flow.values]
        self._lines = steps_of_lines(flow, [value for value in flow.values if value.call != LEAF])
        self._by_form: dict[tuple[tuple[int, ...], bool], list[list[Value]]] = {}
        self._power = [kept.sketches[value.number].rms ** 2 * value.numel for value in flow.values]

    def fitting(
        self, operator: str, tensor: torch.Tensor, order: Callable[[Value], tuple[bool, int]],
        is_as_large: Callable[[Value, float], bool],
    ) -> Iterator[tuple[list[Value], torch.Tensor]]:  # fmt: skip
        """Series that put together have the form of a tensor, and what they make of it.

        Those of the same operator come first, in the order of their first values; `is_as_large` says of a
        value and of the size (rms) of all of them whether they may be it.
        """

        def place(parts: list[Value]) -> tuple[bool, bool, int]:
            is_claimed, distance = order(parts[0])
            return is_claimed, self._operators[parts[0].number] != operator, distance

        found = sorted(self._of_form(tensor), key=place)
        numel = tensor.numel()
        for parts in found:
            is_exact = sum(part.numel for part in parts) == numel
            if not is_exact or is_as_large(parts[0], self._rms(parts)):
                yield from ((parts, whole) for whole, _ in self.put_together(parts, tensor))

    def put_together(self, parts: list[Value], tensor: torch.Tensor) -> Iterator[tuple[torch.Tensor, Cut]]:
        """In each way that has the form of a tensor, and how they would be cut out of it."""
        kept = [self._kept.tensors[part.number] for part in parts]
        for cut, rows in _cuts(parts, tensor):
            if rows is not None and not rows.leaves_what_is_masked(parts, tensor):
                continue
            # Of scores, what is masked: no part has it.
            whole = tensor.to(kept[0].dtype, copy=True, memory_format=torch.contiguous_format)
            for block, each in zip(cut(whole), kept, strict=True):
                block.copy_(each.reshape(block.shape))
            yield whole, cut

    def parts_of(
        self, operator: str, tensor: torch.Tensor, claimed: Container[int]
    ) -> Iterator[tuple[list[Value], Cut]]:
        """Series of an operator that have the form of a tensor, and how they would be cut out of it.

        Only those that nothing stands for.
        """
        for parts in self._of_form(tensor):
            if self._operators[parts[0].number] == operator and not any(p.number in claimed for p in parts):
                for cut, _ in _cuts(parts, tensor):
                    yield parts, cut

    def _rms(self, parts: list[Value]) -> float:
        return math.sqrt(sum(self._power[part.number] for part in parts) / sum(part.numel for part in parts))

    def _of_form(self, tensor: torch.Tensor) -> list[list[Value]]:
        """Those that have as many numbers, or are rows of scores."""
        key = tuple(tensor.shape), tensor.is_floating_point()
        if key not in self._by_form:
            self._by_form[key] = list(self._found(*key))
        return self._by_form[key]

    def _found(self, shape: tuple[int, ...], is_float: bool) -> Iterator[list[Value]]:
        seen, numel = set[tuple[int, int, int]](), math.prod(shape)
        for line in self._lines:
            if bool(line.values[0].eps) != is_float:
                continue
            for parts in line.series_of(shape):
                key = parts[0].number, parts[1].number, len(parts)
                if key in seen:
                    continue
                seen.add(key)
                if sum(part.numel for part in parts) == numel or any(rows_of(parts, shape)):
                    yield parts


def _cuts(parts: list[Value], tensor: torch.Tensor) -> Iterator[tuple[Cut, Rows | None]]:
    """Ways in which a contiguous tensor consists of parts."""
    if sum(part.numel for part in parts) != tensor.numel():
        for rows in rows_of(parts, tuple(tensor.shape)):
            yield partial(rows.of, parts), rows
        return
    for outer in _outer_sizes(parts):
        widths = [part.numel // outer for part in parts]
        yield partial(_columns_of, outer, widths), None


def _columns_of(outer: int, widths: list[int], whole: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.split(whole.reshape(outer, -1), widths, 1)


def _outer_sizes(parts: list[Value]) -> list[int]:
    """How many rows, such as those of a batch, each part may have a share of."""
    found, size = [1], 1
    for length in parts[0].shape:
        size *= length
        if size not in found and all(part.numel % size == 0 for part in parts):
            found.append(size)
    # Rows of all sequences one after the other, of which a prompt has several and a step has one.
    flat = math.gcd(*(part.shape[0] if part.shape else 1 for part in parts))
    return found + [n for n in range(2, min(flat, _MOST_ROWS) + 1) if flat % n == 0 and n not in found]
