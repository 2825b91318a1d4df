"""A small compiled program, with its backward pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

Program = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def tiny() -> Program:
    def sin_plus_one(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    compiled = torch.compile(sin_plus_one)
    compiled(torch.ones(8))
    compiled(torch.ones(8, requires_grad=True)).sum().backward()
    return compiled
