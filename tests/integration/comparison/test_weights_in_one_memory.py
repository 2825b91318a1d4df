"""All weights and gradients in one memory each, as some optimizers want it, against tensors of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kernelscope


def _train(in_one: bool, steps: int = 1, rate: float = 0.1, zeroed: bool = True) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 6))
    weights = list(model.parameters())
    all_weights = torch.cat([each.detach().flatten() for each in weights])
    gradients = torch.zeros_like(all_weights)
    if in_one:
        sizes = [each.numel() for each in weights]
        for each, mine, given in zip(weights, all_weights.split(sizes), gradients.split(sizes), strict=True):
            each.data, each.grad = mine.view(each.shape), given.view(each.shape)
    for _ in range(steps):
        x, wanted = torch.randn(10, 12), torch.randint(0, 6, (10,))
        if in_one and zeroed:
            gradients.zero_()
        F.cross_entropy(model(x), wanted).backward()
        with torch.no_grad():
            if in_one:
                gradients.mul_(0.5)
                all_weights.add_(gradients, alpha=-rate)  # updated: in one
                continue
            for each in weights:
                assert each.grad is not None
                each.grad.mul_(0.5)
                each.add_(each.grad, alpha=-rate)  # updated: one by one
                each.grad = None


def _line(text: str) -> int:
    with open(__file__, encoding="utf-8") as lines:
        return next(number for number, line in enumerate(lines, start=1) if f"# {text}" in line)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("in_one", [True, False])
def test_no_alarm(in_one: bool, steps: int) -> None:
    result = kernelscope.compare(lambda: _train(not in_one, steps), lambda: _train(in_one, steps))
    assert result.status == 0, result.details()


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("in_one", "line"), [(True, "updated: in one"), (False, "updated: one by one")])
def test_a_wrong_rate_is_named(in_one: bool, line: str, steps: int) -> None:
    """After one step nothing reads the weights any more: the update itself has to be compared."""
    result = kernelscope.compare(lambda: _train(not in_one, steps), lambda: _train(in_one, steps, 0.12))
    assert result.first is not None
    assert result.first.call.name == "aten.add_.Tensor", result.details()
    assert result.first.call.origin[0].line == _line(line), result.details()


def test_gradients_that_are_not_set_to_zero_are_named() -> None:
    result = kernelscope.compare(lambda: _train(False, 2), lambda: _train(True, 2, zeroed=False))
    assert result.first is not None
    assert result.first.call.name == "aten.add_.Tensor", result.details()
    assert result.first.call.phase == "backward", result.details()
