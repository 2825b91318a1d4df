"""An operator that begins to write to another's memory when it is told to, without declaring it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

NAME = "kernelscope_late.meddle.default"
VICTIMS: list[torch.Tensor] = []  # that the operator writes to; an empty one stands for its own input


@torch.library.custom_op("kernelscope_late::meddle", mutates_args=())
def meddle(x: torch.Tensor) -> torch.Tensor:
    if VICTIMS:
        (VICTIMS[0] if VICTIMS[0].numel() else x).view(-1)[3] += 17
    return x + 1


@meddle.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    VICTIMS.clear()
    torch._dynamo.reset()
    yield
    VICTIMS.clear()
    torch._dynamo.reset()
