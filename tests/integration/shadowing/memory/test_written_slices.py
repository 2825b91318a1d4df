"""Custom operators that write to a part of what a kernel computes.

Inductor computes the part for the operator, and what surrounds it again where the whole is read: no variable
of the wrapper has the tensor that the program wrote to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.integration.faults.wrong_element import wrong_element

import kernelscope
from kernelscope import ShadowResult


@torch.library.custom_op("written_slices::add_", mutates_args=("x",))
def add_(x: torch.Tensor, more: torch.Tensor) -> None:
    x.add_(more)


@torch.library.custom_op("written_slices::both_", mutates_args=("x", "y"))
def both_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    y.mul_(2)
    return x + y


@both_.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def one(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    add_(y[:2], y[2:4].cos())
    return y * 2


def two_at_once(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y, z = x.sin(), x.cos()
    result = both_(y[:2], z[:2])
    return y * 2, z + 1, result


PROGRAMS: list[Callable[..., Any]] = [one, two_at_once]


def overlapping(x: torch.Tensor) -> torch.Tensor:
    """torch 2.13 and older give the second operator rows that lack what the first one wrote."""
    y = x.sin()
    add_(y[:2], y[2:4])
    between = y + 1
    add_(y[1:3], between[:2])
    return y * between


def rows() -> torch.Tensor:
    return torch.linspace(0.1, 1, 32).view(4, 8)


def shadowed(function: Callable[..., Any]) -> ShadowResult:
    torch.compiler.reset()
    with kernelscope.shadow() as result:
        torch.compile(function)(rows())
    return result


@pytest.mark.parametrize("function", PROGRAMS)
def test_each_launch_is_judged(function: Callable[..., Any]) -> None:
    result = shadowed(function)
    assert not result, str(result)
    assert not result.unchecked
    assert result.status == 0


@pytest.mark.parametrize(("launch", "place"), [(0, 0), (1, 3)])  # of the second, a result
@pytest.mark.parametrize("function", PROGRAMS)
def test_a_wrong_element_before_and_after_the_operator_is_found(
    function: Callable[..., Any], launch: int, place: int
) -> None:
    with wrong_element(launch, place) as planted:
        result = shadowed(function)
    assert planted.kernel
    assert result.culprit is not None, str(result)
    named = {result.culprit.kernel_name, *(result.culprit.to_dict().get("joined") or ())}
    assert planted.kernel in named, str(result)


def test_rows_that_two_operators_write_to() -> None:
    torch.compiler.reset()
    is_wrong = not torch.allclose(torch.compile(overlapping)(rows()), overlapping(rows()))
    result = shadowed(overlapping)
    assert bool(result) == is_wrong, str(result)
    if is_wrong:
        assert result.culprit is not None
        assert result.culprit.verdict == "wrong-kernel"
