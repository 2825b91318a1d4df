"""The same numbers in another order: one program has its batch first, the other its sequence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations

import torch

Shape = tuple[int, ...]
_MOST_ORDERS = 6
_MOST_DIMENSIONS = 6


@dataclass(frozen=True, slots=True)
class Layout:
    """What to make of one program's value: these sizes, then its dimensions in this order."""

    sizes: Shape
    order: tuple[int, ...]

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(self.sizes).permute(self.order)


class Layouts:
    """Orders of dimensions that copies in either program change; products have two of them as one."""

    def __init__(self) -> None:
        self._swapped: dict[Shape, None] = {}  # sizes of the first two dimensions, either way

    def note_copy(self, source: Shape, made: Shape) -> None:
        """A copy whose first two dimensions have changed places."""
        if len(source) == len(made) > 1 and source != made and (source[1], source[0], *source[2:]) == made:
            self._swapped |= {source[:2]: None, made[:2]: None}

    def between(self, shape: Shape, wanted: Shape) -> Iterator[Layout]:
        """In which other orders a value of one shape has the other."""
        sizes, target = (tuple(size for size in each if size != 1) for each in (shape, wanted))
        if sizes != target and max(len(sizes), len(target)) <= _MOST_DIMENSIONS:
            yield from islice(_orders(sizes, target), _MOST_ORDERS)
        for first, second in self._swapped:
            if wanted and shape and wanted[0] == shape[0] == first * second:
                rest = math.prod(shape) // max(shape[0], 1)
                yield Layout((first, second, rest), (1, 0, 2))


def _orders(sizes: Shape, target: Shape) -> Iterator[Layout]:
    """Of the one with more dimensions, some may be one in the other: heads and batch, of a product."""
    fine, coarse = (sizes, target) if len(sizes) >= len(target) else (target, sizes)
    if _joins_to(fine, coarse):
        return  # as they are: two dimensions of one size that have changed places are an error
    for order in permutations(range(len(fine))):
        if not _joins_to(_ordered(fine, order), coarse):
            continue
        if fine is sizes and order != tuple(range(len(order))):
            yield Layout(sizes, order)
        elif fine is target and order != tuple(range(len(order))):
            back = tuple(order.index(i) for i in range(len(order)))
            yield Layout(_ordered(fine, order), back)


def are_joined(shape: Shape, other: Shape) -> bool:
    """Whether one has neighbouring dimensions of the other as one."""
    fine, coarse = (shape, other) if len(shape) >= len(other) else (other, shape)
    return _joins_to(fine, coarse)


def _joins_to(fine: Shape, coarse: Shape) -> bool:
    """Whether the second has the sizes of the first, or products of those that are neighbours."""
    place, size = 0, 1
    for each in fine:
        size *= each
        if place < len(coarse) and size == coarse[place]:
            place, size = place + 1, 1
    return place == len(coarse) and size == 1


def _ordered(sizes: Shape, order: tuple[int, ...]) -> Shape:
    return tuple(sizes[i] for i in order)
