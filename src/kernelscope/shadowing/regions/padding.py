"""Whether a result has eager's layout with padding: Inductor pads rows on purpose, and may return them so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernelscope.probes.torch_flags import inductor_may_pad
from kernelscope.shadowing.culprit import Padded

_ALIGNMENT = 16  # bytes: the least to which Inductor aligns what it pads


def is_padded(made: torch.Tensor, eager: torch.Tensor) -> bool:
    """`eager` is dense, and `made` the same with gaps that align its rows: no other order, no overlap."""
    ours, theirs = _dimensions(made), _dimensions(eager)
    if not ours or ours[0].stride != theirs[0].stride:
        return False
    if [each.index for each in ours] != [each.index for each in theirs]:
        return False  # another order of dimensions
    end, dense_end, gaps = ours[0].end, theirs[0].end, 0
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        gap = one.stride - end
        if other.stride != dense_end or gap < 0 or (gap and one.stride * made.itemsize % _ALIGNMENT):
            return False
        end, dense_end, gaps = one.end, other.end, gaps + gap
    return theirs[0].stride == 1 and gaps > 0


def padded(
    function: str, made: Sequence[Any], eager: Sequence[Any], whats: Sequence[str]
) -> Iterator[Padded]:
    """The results that are."""
    for one, other, what in zip(made, eager, whats, strict=True):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        are_plain = one.layout is torch.strided and other.layout is torch.strided
        if are_plain and one.shape == other.shape and one.numel() and is_padded(one, other):
            yield Padded(function, what, tuple(one.stride()), tuple(other.stride()))


def may_be_padded(given: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether Inductor pads results of such a function on purpose."""
    tensors = (value for value in (*given, *made) if isinstance(value, torch.Tensor))
    return inductor_may_pad(tensor.device.type for tensor in tensors)


class _Dimension:
    """One with more than one element."""

    def __init__(self, index: int, size: int, stride: int) -> None:
        self.index, self.stride, self.end = index, stride, size * stride


def _dimensions(value: torch.Tensor) -> Sequence[_Dimension]:
    """From the innermost outwards."""
    pairs = enumerate(zip(value.shape, value.stride(), strict=True))
    found = [_Dimension(i, size, stride) for i, (size, stride) in pairs if size > 1]
    return sorted(found, key=lambda each: each.stride)
