"""Programs that differ on the way, and not in what they compute; and some with too little in common."""

from __future__ import annotations

import torch

import kernelscope

_X = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
_W = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def test_factors_in_another_order() -> None:
    result = kernelscope.compare(
        lambda x: (x @ _W * 2 * 3).softmax(-1) @ _W, lambda x: (x @ _W * 3 * 2).softmax(-1) @ _W, (_X,)
    )
    assert result.status == 0, result.details()


def test_what_a_softmax_takes_out() -> None:
    place = torch.arange(8.0)
    result = kernelscope.compare(
        lambda x: (x @ x.T + 0.1 * place).softmax(-1) @ _W,
        lambda x: (x @ x.T + 0.1 * (place - place[:, None])).softmax(-1) @ _W,
        (_X,),
    )
    assert result.status == 0, result.details()


def test_a_wrong_factor_is_an_error_all_the_same() -> None:
    result = kernelscope.compare(
        lambda x: (x @ _W * 2 * 3).softmax(-1) @ _W, lambda x: (x @ _W * 3 * 3).softmax(-1) @ _W, (_X,)
    )
    assert result.status == 1, result.details()


def test_little_in_common_is_inconclusive() -> None:
    def one(x: torch.Tensor) -> None:
        y = x @ _W
        (y.sin().cumsum(0).exp().tanh() @ _W[:, :4]).abs().sum()

    def other(x: torch.Tensor) -> None:
        y = x @ _W
        (y.cos().flip(0).square().sigmoid() @ _W[:, :5]).logsumexp(0)

    result = kernelscope.compare(one, other, (_X,))
    assert result.status == 2, result.details()
    assert "too little to judge" in result.problem
