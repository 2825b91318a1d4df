"""Operators of a program's own."""

from __future__ import annotations

import torch


@torch.library.custom_op("kernelscope_tests::add_into", mutates_args=("x", "count"))
def add_into(x: torch.Tensor, y: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    count.add_(1)
    return y * 2


@add_into.register_fake
def _(x: torch.Tensor, y: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(y)


@torch.library.custom_op("kernelscope_tests::several", mutates_args=())
def several(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return x + 1, [x * 2, x * 3]


@several.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.empty_like(x), [torch.empty_like(x), torch.empty_like(x)]


@torch.library.custom_op("kernelscope_tests::half_written", mutates_args=())
def half_written(x: torch.Tensor) -> torch.Tensor:
    half_written.count += 1  # type: ignore[attr-defined]
    content = 1e19 if half_written.count % 23 == 0 else 1.0  # type: ignore[attr-defined]
    before = [torch.full((2 * x.numel(),), content) for _ in range(16)]
    del before  # its memory is given out again
    made = torch.empty(2 * x.numel())
    made[: x.numel()] = x.flatten()
    return made


half_written.count = 0  # type: ignore[attr-defined]


@half_written.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(2 * x.numel())
