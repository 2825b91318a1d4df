"""Operators of a program's own, for graphs whose wrapper is C++, and an input for which no result is NaN."""

from __future__ import annotations

import torch


@torch.library.custom_op("kernelscope_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("kernelscope_tests::pair", mutates_args=())
def pair(xs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return xs[0] + xs[1], xs[0] - xs[1]


@pair.register_fake
def _(xs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(xs[0]), torch.empty_like(xs[0])


@torch.library.custom_op("kernelscope_tests::raise_by", mutates_args=("x",))
def raise_by(x: torch.Tensor, amount: float) -> None:
    x.add_(amount)


X = torch.ones(5, 4)  # for which all is well: no logarithm of a negative number
