"""Rounding does not explain a wrong comparison of whole numbers, which are not rounded."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from tests.integration.faults.planting import Canary, configured

import kernelscope


def rounded(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.round() < 1, x.sin(), x.cos())


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.floor() * 2 + 1 < 3, x.sin(), x.cos())


def in_half_precision(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.bfloat16().trunc() * 0.5 - 1 < 0, x.sin(), x.cos())


def _at_most_for_less(canary: Canary) -> Callable[[torch.fx.Graph], None]:
    def wrong_pass(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is operator.lt:
                node.target = operator.le
                canary.hits += 1

    return wrong_pass


@pytest.mark.parametrize("program", [rounded, doubled, in_half_precision])
def test_a_wrong_comparison_is_named(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0)) * 2
    torch._dynamo.reset()
    with configured("pre_grad_custom_pass", _at_most_for_less)() as canary, kernelscope.shadow() as result:
        made = torch.compile(program)(x)
    assert canary.hits == 1
    assert not torch.equal(made, program(x))
    assert result.culprit is not None, str(result)
    assert result.culprit.verdict == "wrong-stage", str(result)
    assert result.culprit.kernel_name.startswith("pre_grad_custom_pass"), str(result)


@pytest.mark.parametrize("program", [rounded, doubled, in_half_precision])
def test_a_right_one_is_not_accused(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(program)(torch.randn(8, 32))
    assert result.status == 0, str(result)
