"""Scores of tokens with those before them, in steps: rows that get longer, or are as wide as a window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import torch

from .flow.calls_and_values import Value

MASKED = -1e4  # scores of what is not to be attended to
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """How the scores of all tokens consist of those of each step."""

    heads: int  # that are one dimension with the tokens, as products have them that einsum makes
    is_heads_first: bool

    def of(self, parts: list[Value], whole: torch.Tensor) -> list[torch.Tensor]:
        """The places of the parts in a contiguous tensor; they end with the column of their last token."""
        *outer, rows, columns = whole.shape
        tokens = rows // self.heads
        sizes = (self.heads, tokens) if self.is_heads_first else (tokens, self.heads)
        view, found, first = whole.view(*outer, *sizes, columns), [], 0
        for part in parts:
            last = first + part.shape[-2] // self.heads
            lines, places = slice(first, last), slice(last - part.shape[-1], last)
            found.append(view[..., lines, places] if self.is_heads_first else view[..., lines, :, places])
            first = last
        return found

    def leaves_what_is_masked(self, parts: list[Value], tensor: torch.Tensor) -> bool:
        """What no part has is masked, or nothing of it is yet; a window that is too short leaves more."""
        left = torch.ones(tensor.shape, dtype=torch.bool, device=tensor.device)
        for block in self.of(parts, left):
            block.fill_(False)
        rest = tensor[left]
        masked = (rest <= MASKED) | (rest == 0)
        return bool(masked.all()) or not bool(masked.any())


def rows_of(parts: list[Value], shape: Shape) -> Iterator[Rows]:
    """Ways in which steps may be the rows of scores of this shape."""
    if len(shape) < 2 or any(len(p.shape) != len(shape) or p.shape[:-2] != shape[:-2] for p in parts):
        return
    most = math.gcd(shape[-2], *(part.shape[-2] for part in parts))
    for heads in range(1, most + 1):
        if most % heads == 0 and _grow(parts, heads, shape):
            yield Rows(heads, True)
            if heads > 1:
                yield Rows(heads, False)


def _grow(parts: list[Value], heads: int, shape: Shape) -> bool:
    """From the first token on, by as many columns as there are tokens, or up to the width of a window."""
    steps = [part.shape[-2] // heads for part in parts]
    tokens, columns = list(accumulate(steps)), [part.shape[-1] for part in parts]
    if tokens[-1] * heads != shape[-2] or columns[0] != steps[0] or max(columns) > shape[-1]:
        return False
    if tokens[-1] > shape[-1] or columns[-1] < 2:
        return False
    return columns == tokens or any(
        all(c == min(t, width + more * (n - 1)) for t, n, c in zip(tokens, steps, columns, strict=True))
        for more in (0, 1)
        for width in (max(columns) - more * (max(steps[1:]) - 1),)
    )
