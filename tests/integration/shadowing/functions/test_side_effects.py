"""Side effects happen once, however often shadow evaluates a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops import effects

import kernelscope


def test_what_a_program_prints_is_printed_once(capfd: Any) -> None:
    def prints(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._higher_order_ops.print("the sum is {}", y.sum())
        return y + 1

    if not hasattr(torch._higher_order_ops, "print"):
        pytest.skip("this version of torch cannot print in compiled code")
    with kernelscope.shadow() as result:
        torch.compile(prints)(torch.ones(3))
    assert result.status == 0, str(result)
    assert capfd.readouterr().out.count("the sum is 6.0") == 1


def test_an_operator_with_side_effects_is_called_once_and_reported() -> None:
    calls = []

    @torch.library.custom_op("kernelscope_tests::notes", mutates_args=())
    def notes(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.sum().item())
        return x.clone()

    @notes.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    effects._register_effectful_op(torch.ops.kernelscope_tests.notes.default, effects._EffectType.ORDERED)
    with kernelscope.shadow() as result:
        torch.compile(lambda x: torch.ops.kernelscope_tests.notes(x * 2) + 1)(torch.ones(3))
    assert calls == [6.0]
    assert result.status == 2, str(result)
    assert any("side effects" in str(each) for each in result.unchecked)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_check_that_may_raise_is_left_out(gradient: bool) -> None:
    """`linalg.inv` checks whether there was an error: an effect with an order, which changes nothing."""
    torch.compiler.reset()
    matrix = (2j * torch.eye(3)).requires_grad_(gradient)
    with kernelscope.shadow() as result:
        torch.compile(torch.linalg.inv)(matrix)
    assert result.status == 0, str(result)
    assert [str(each) for each in result.unchecked] == []
    assert result.to_dict()["judged"]["steps"] == 1
