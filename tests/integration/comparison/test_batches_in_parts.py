"""A batch in parts, whose gradients are added up, beside the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import kernelscope


def _train(parts: int = 1, error: str = "") -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 3))
    inputs, targets = torch.randn(8, 6), torch.randn(8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            hidden = model[0](x)
            hidden = torch.relu(hidden) if error == "relu" else model[1](hidden)  # wrong: relu
            loss = (model[2](hidden) - y).square().mean()
            loss = loss / (parts + 1) if error == "share" else loss / parts  # wrong: share
            loss.backward()
            if error == "norm":
                nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            elif error == "step":
                optimizer.step()  # wrong: step
        if error == "clipping":
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # wrong: clipping
        optimizer.step()


def _line(error: str) -> int:
    with open(__file__, encoding="utf-8") as text:
        return next(number for number, line in enumerate(text, start=1) if f"# wrong: {error}" in line)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_raise_no_alarm(parts: int) -> None:
    result = kernelscope.compare(_train, lambda: _train(parts))
    assert result.status == 0, result.details()
    assert result.shares["reference"] > 0.9, result.details()


def test_a_norm_that_is_taken_of_each_part_raises_no_alarm() -> None:
    result = kernelscope.compare(_train, lambda: _train(2, "norm"))
    assert result.status == 0, result.details()


def test_a_step_after_each_part_is_an_error() -> None:
    assert kernelscope.compare(_train, lambda: _train(2, "step")).first is not None


@pytest.mark.parametrize("error", ["relu", "share", "clipping"])
def test_an_error_among_the_parts_is_named(error: str) -> None:
    result = kernelscope.compare(_train, lambda: _train(4, error))
    assert result.first is not None, result.details()
    assert result.first.call.origin[0].line == _line(error), result.details()


def test_parts_as_the_reference_are_inconclusive() -> None:
    result = kernelscope.compare(lambda: _train(4), _train)
    assert result.status == 2, result.details()
    assert "whole batch" in result.problem
    other = kernelscope.compare(lambda: _train(2), lambda: _train(4))
    assert (other.status, other.problem) == (2, result.problem), other.details()


def test_parts_beside_parts() -> None:
    assert kernelscope.compare(lambda: _train(2), lambda: _train(2)).status == 0
