"""A small model that most loops of training in these pairs train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import seeded, train

Optimizer = Callable[[Any], torch.optim.Optimizer]


def small_model() -> nn.Sequential:
    seeded()
    return nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.0), nn.Linear(32, 10))


def data(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(5)
    return torch.randn(16, 24, generator=drawn).to(dtype), torch.randint(0, 10, (16,), generator=drawn)


def loss_of(model: nn.Module) -> torch.Tensor:
    x, y = data(next(model.parameters()).dtype)
    return F.cross_entropy(model(x).float(), y)


def plain(optimizer: Optimizer | None = None) -> Any:
    return train(small_model(), loss_of, optimizer=optimizer)
