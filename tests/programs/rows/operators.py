"""Operators of a program's own, as a library would have them."""

from __future__ import annotations

import torch
from torch.nn import functional as F


@torch.library.custom_op("kernelscope_rows::split_sum", mutates_args=())
def split_sum(x: torch.Tensor) -> torch.Tensor:
    """In two halves when there are many rows."""
    if x.shape[0] > 4:
        half = x.shape[1] // 2
        return x[:, :half].sum(1) + x[:, half:].sum(1)
    total = x.new_zeros(x.shape[0])
    for column in range(x.shape[1]):
        total += x[:, column]
    return total


@torch.library.custom_op("kernelscope_rows::leaky_pad", mutates_args=())
def leaky_pad(x: torch.Tensor) -> torch.Tensor:
    """Each row gets the first element of the next one; the last row gets zero."""
    return torch.cat([x, F.pad(x[1:, :1], (0, 0, 0, 1))], 1)


@torch.library.custom_op("kernelscope_rows::shifted", mutates_args=())
def shifted(x: torch.Tensor) -> torch.Tensor:
    """An index error: from the fifth row on, the row before."""
    index = torch.arange(x.shape[0], device=x.device)
    index[4:] -= 1
    return x[index].clone()


@torch.library.custom_op("kernelscope_rows::racing", mutates_args=())
def racing(x: torch.Tensor) -> torch.Tensor:
    """Adds up columns in an order that depends on the number of rows, as atomics do."""
    total = x.new_zeros(x.shape[0])
    for column in range(x.shape[1]):
        total += x[:, (column * 7 + x.shape[0]) % x.shape[1]]
    return total


@torch.library.custom_op("kernelscope_rows::scaled_by_batch", mutates_args=())
def scaled_by_batch(x: torch.Tensor) -> torch.Tensor:
    """One scale for the whole batch, as for fp8."""
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


@torch.library.custom_op("kernelscope_rows::row_sum", mutates_args=())
def row_sum(x: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(x.shape[0])
    for column in range(x.shape[1]):
        total += x[:, column]
    return total


@torch.library.custom_op("kernelscope_rows::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("kernelscope_rows::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    """Rows that begin with a positive number: how many is known only afterwards."""
    return x[x[:, 0] > 0].clone()


@positive.register_fake
def _of_any_size(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.shape[1])


@torch.library.custom_op("kernelscope_rows::running", mutates_args=())
def running(x: torch.Tensor) -> torch.Tensor:
    """Each row gets all rows before it."""
    return x.cumsum(0)


@torch.library.custom_op("kernelscope_rows::times", mutates_args=())
def times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product whose order of additions depends on the number of rows, as that of a library does."""
    total = x.new_zeros(x.shape[0], weight.shape[1])
    for k in range(x.shape[1]):
        k = (k * 7 + x.shape[0]) % x.shape[1]
        total += x[:, k, None] * weight[k]
    return total


for _operator in (split_sum, racing, row_sum):
    _operator.register_fake(lambda x: x.new_empty(x.shape[0]))
for _operator in (shifted, doubled, running):
    _operator.register_fake(torch.empty_like)
times.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[1]))
scaled_by_batch.register_fake(torch.empty_like)
leaky_pad.register_fake(lambda x: x.new_empty(x.shape[0], x.shape[1] + 1))
