"""Our work does not see what the program has set in torch, nor the program what our work leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from kernelscope.shadowing.program_state import own_autograd_state, without_function_modes


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made * 2 if func is torch.add else made


def test_modes_of_the_program_are_off_and_modes_of_operators_are_on() -> None:
    one = torch.ones(())
    with Doubles(), Doubles():
        with without_function_modes():
            assert torch.add(one, one).item() == 2
            with Doubles():  # as flex_attention enters one
                assert torch.add(one, one).item() == 4
        assert torch.add(one, one).item() == 8


def test_hooks_on_saved_tensors_are_those_of_the_program_again() -> None:
    seen: list[str] = []

    def hooks(name: str) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(name), t)[1], lambda t: t)

    x = torch.ones(2, requires_grad=True)
    with hooks("outer"), hooks("inner"):
        with own_autograd_state():
            x.square()
        assert seen == []
        x.square()
    assert seen == ["inner"]


def test_levels_of_torch_func_that_an_error_left_are_gone() -> None:
    functorch: Any = torch._C._functorch

    def fails_inside() -> None:
        with own_autograd_state():
            torch._C._autograd._saved_tensors_hooks_disable("inside torch.func")
            functorch._grad_increment_nesting()
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fails_inside()
    assert functorch.get_dynamic_layer_stack_depth() == 0
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        torch.ones(2, requires_grad=True).square()
    assert torch.func.grad(torch.sin)(torch.zeros(())).item() == 1


def test_a_level_of_forward_gradients_that_an_error_left_is_gone() -> None:
    """A traced graph enters and leaves it in lines of its own; the next run would be nested in it."""

    def fails_inside() -> None:
        with own_autograd_state():
            forward_ad.enter_dual_level()
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fails_inside()
    assert torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.ones(()),))[1].item() == 1
