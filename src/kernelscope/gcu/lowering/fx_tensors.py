"""Tensors of an FX graph, as the lowerings see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from .dag import Access
from .sizes import Size, equal, is_one, sizes_of


class Refused(Exception):
    """Why an operator is not lowered, in a few words."""


@dataclass(frozen=True)
class Strided:
    """Some elements of a buffer, as a tensor."""

    buffer: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size
    dtype: torch.dtype

    def over(self, shape: tuple[Size, ...]) -> Access:
        """Its elements over the dimensions of a shape that it broadcasts to."""
        missing = len(shape) - len(self.shape)
        if missing < 0:
            raise Refused("its operand has more dimensions than its result")
        strides: list[Size] = [0] * missing
        for own, stride, extent in zip(self.shape, self.stride, shape[missing:], strict=True):
            if is_one(own):
                strides.append(0)
            elif equal(own, extent):
                strides.append(stride)
            else:
                raise Refused(f"its operand of size {own} does not broadcast to {extent}")
        return Access(self.buffer, tuple(strides), self.offset)


def strided(buffer: str, value: Any, offset: Size) -> Strided:
    return Strided(buffer, sizes_of(value.shape), sizes_of(value.stride()), offset, value.dtype)


def is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)
