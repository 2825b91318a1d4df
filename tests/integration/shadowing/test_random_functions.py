"""Functions that draw random numbers: eager draws what the compiled code drew, and results are compared."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch._inductor import decomposition
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import kernelscope


def drops(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.randn(x.shape) * 0.1 + torch.rand_like(x)
    return F.dropout(x, 0.3) * 2 + noise, torch.randint(2, 9, (5,)) + F.dropout(x.sum(0), 0.5)[:1].long()


def halves(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.to(torch.bfloat16), 0.25) + 1


@pytest.mark.parametrize("function", [drops, halves])
def test_random_results_and_their_gradients_are_compared(function: Any) -> None:
    result = kernelscope.check_correctness(function, (torch.randn(16, 8).requires_grad_(),))
    assert result.status == 0, str(result)
    assert result.counts.regions == 1
    assert result.counts.arbitrary == 0, str(result)


def test_a_wrong_random_function_is_named() -> None:
    """Dropout that forgets to scale what it keeps: no kernel and no step is wrong by its own graph."""

    def forgets(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.rand_like(x) > p
        return kept * x, kept

    table = {torch.ops.aten.native_dropout.default: forgets}
    with mock.patch.dict(decomposition.fast_random_decomps(), table):
        result = kernelscope.check_correctness(lambda x: F.dropout(x, 0.5) + 1, (torch.randn(64),))
    assert [c.verdict for c in result] == ["wrong-function"], str(result)
    assert "result 0" in result.culprits[0].argument


def test_numbers_that_come_from_a_generator_of_torch_are_left_out() -> None:
    """Samples are drawn by ATen itself, from a generator that the compiled code has used before."""

    def samples(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x) + torch.multinomial(x.abs(), 1)

    result = kernelscope.check_correctness(samples, (torch.randn(12, 30),))
    assert result.status == 0, str(result)
    assert result.counts.arbitrary > 0


def test_draws_of_few_values_are_left_out_even_if_two_seeds_draw_the_same() -> None:
    """A whole channel is dropped or not: two runs of eager often agree on it, and compiled code does not."""

    def channels(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.dropout(x), *(F.dropout1d(x, 0.5) for _ in range(12)), torch.multinomial(x.abs(), 1)]

    torch.manual_seed(0)
    result = kernelscope.check_correctness(channels, (torch.randn(1, 2),))
    assert result.status == 0, str(result)
    assert result.counts.arbitrary > 0


def test_what_is_drawn_again_in_a_backward_is_not_an_alarm() -> None:
    """A checkpointed part of eager runs again in its backward, with numbers of torch's generator."""

    def part(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.relu(x @ w), 0.5)

    def checkpointed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(part, x, w, use_reentrant=False)

    args = torch.randn(6, 4).requires_grad_(), torch.randn(4, 4).requires_grad_()
    result = kernelscope.check_correctness(checkpointed, args)
    assert not result, str(result)
    assert not result.failures, result.details()
    assert result.counts.regions == 1
