"""A compiled program leaves other values than an eager one: fewer of some, and several at once."""

from __future__ import annotations

from collections.abc import Callable

import torch

import kernelscope


def _written_in_parts(wrong: bool = False) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x * 2 + 1
        x[:, 0] = 0
        x[1::2].clamp_(min=0)
        y = torch.tanh(x * (1.5 if wrong else 1.0) + x.cumsum(0))
        made = torch.zeros_like(y)
        made[:3].copy_(y[3:])
        made[3:] += x[:3]
        return made, y.masked_fill(y > 0.5, 0.0)

    return run


def test_what_eager_code_writes_in_parts_is_found_as_a_whole() -> None:
    torch.manual_seed(9)
    x = torch.randn(6, 10)
    result = kernelscope.compare(_written_in_parts(), torch.compile(_written_in_parts()), (x,))
    assert result.status == 0, result.details()
    wrong = kernelscope.compare(_written_in_parts(), torch.compile(_written_in_parts(wrong=True)), (x,))
    assert wrong.status == 1, wrong.details()
    assert wrong.first is not None
    assert "tanh" in wrong.first.call.name, wrong.details()
