"""A step that only one of two programs takes, after which nothing is computed any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import kernelscope

_Step = Callable[[torch.Tensor], torch.Tensor | None]
_IN_PLACE: list[_Step] = [lambda w: w.mul_(0.9), lambda w: w[0].mul_(2), lambda w: w.clamp_(-0.05, 0.05)]
_RETURNED: list[_Step] = [lambda y: y * 1.5, lambda y: y.relu(), lambda y: y.softmax(-1)]


def _train(step: _Step | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Linear(12, 16)
    model(torch.randn(10, 12)).square().mean().backward()
    with torch.no_grad():
        assert model.weight.grad is not None
        model.weight.add_(model.weight.grad, alpha=-0.1)
        if step is not None:
            step(model.weight)


def _predict(step: _Step | None = None) -> torch.Tensor | None:
    torch.manual_seed(0)
    found = nn.Linear(12, 16)(torch.randn(10, 12))
    return step(found) if step is not None else found


@pytest.mark.parametrize(
    ("program", "step"), [*((_train, each) for each in _IN_PLACE), *((_predict, each) for each in _RETURNED)]
)
def test_it_is_named(program: Callable[..., object], step: _Step) -> None:
    result = kernelscope.compare(program, lambda: program(step))
    assert result.first is not None, result.details()
    assert result.first.kind == "computes", result.details()
    assert result.first.call.origin[0].function == "<lambda>", result.details()
    result = kernelscope.compare(lambda: program(step), program)
    assert result.first is not None, result.details()
    assert result.first.kind == "stops", result.details()
    assert result.first.reference is not None
    assert result.first.reference.origin[0].function == "<lambda>", result.details()


@pytest.mark.parametrize("step", [lambda w: w.mul_(1.0), lambda w: w.clamp_(-50, 50), lambda w: w.add_(0)])
def test_a_step_that_changes_nothing_raises_no_alarm(step: _Step) -> None:
    assert kernelscope.compare(_train, lambda: _train(step)).status == 0
    assert kernelscope.compare(lambda: _train(step), _train).status == 0
