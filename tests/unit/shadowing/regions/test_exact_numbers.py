"""Small errors leave alone what an operator computes exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelscope.shadowing.regions.modes.wide_mode import Wide

X = torch.tensor([1.5, 2.5, -3.25, 8.0])
EXACT: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.round(),
    lambda x: x.clone().floor_(),
    lambda x: x.trunc() * 2 + 1,
    lambda x: x / 2,
    lambda x: 1 - x,
    lambda x: x.bfloat16() + 1,
    lambda x: x.to(torch.int64).to(torch.float32),
]
ROUNDED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x * 0.3,
    lambda x: x / 7,
    lambda x: x + 1e-3,
    lambda x: (x / 7).round(decimals=2),
    lambda x: torch.add(x, x, alpha=0.7),
    lambda x: x.sin(),
    lambda x: (x + 0.01).bfloat16(),
]


def with_errors(program: Callable[[torch.Tensor], torch.Tensor], seed: int) -> torch.Tensor:
    mode, x = Wide(torch.Generator().manual_seed(seed)), X.double()
    mode.learn(x, torch.float32)
    with mode:
        return program(x)


@pytest.mark.parametrize("program", EXACT)
def test_exact(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert torch.equal(with_errors(program, 0), with_errors(program, 1))
    assert torch.equal(with_errors(program, 0), program(X).double())


@pytest.mark.parametrize("program", ROUNDED)
def test_rounded(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    one, other = with_errors(program, 0), with_errors(program, 1)
    assert (one != other).all()
    assert torch.allclose(one, program(X).double(), rtol=1e-2)
