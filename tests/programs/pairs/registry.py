"""Where the modules beside it put their pairs of programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Function = Callable[[], Any]


@dataclass(frozen=True)
class Pair:
    """The reference, and the other program, which may be given the name of an error."""

    reference: Function
    other: Callable[[str], Any]
    errors: tuple[str, ...] = ()

    def healthy(self) -> Any:
        return self.other("")


PAIRS: dict[str, Pair] = {}


def pair(name: str, reference: Function, other: Callable[..., Any], *errors: str) -> None:
    assert name not in PAIRS
    PAIRS[name] = Pair(reference, other if errors else lambda error: other(), errors)


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)


def heads(x: torch.Tensor, count: int = 4) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def drawn(*sizes: int, seed: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The same numbers in each dtype, but for rounding."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def train(
    model: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor], count: int = 2,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
) -> list[torch.Tensor]:  # fmt: skip
    """A few steps; what it returns is the last loss."""
    chosen = optimizer(model.parameters()) if optimizer else torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        loss = loss_of(model)
        loss.backward()
        chosen.step()
        chosen.zero_grad()
    return [loss.detach()]
