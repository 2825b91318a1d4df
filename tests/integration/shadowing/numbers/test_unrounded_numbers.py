"""A fused kernel compares numbers that it has not rounded with rounded ones: NaN where eager has none.

Each kernel computes what exact numbers would give. The function is wrong all the same: the kernel is named.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import kernelscope


def smallest_column(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.matrix_norm(x, -1, (-1, 0))


def largest_of_thirds(x: torch.Tensor) -> torch.Tensor:
    return (x / 3).amax(-1)


def smallest_product(x: torch.Tensor) -> torch.Tensor:
    return (x * 0.3 * x.abs()).amin((0, 2)) + 1


@pytest.mark.parametrize("program", [smallest_column, largest_of_thirds, smallest_product])
def test_the_kernel_is_named(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    x = (torch.rand(2, 3, 2) * 18 - 9).to(torch.bfloat16).requires_grad_()
    with kernelscope.shadow() as result:
        torch.compile(program)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isnan().any()
    found = result.culprit
    assert found is not None, str(result)
    phase = "forward" if program is largest_of_thirds else "backward"  # where the comparison is
    assert (found.verdict, found.phase, found.kind) == ("wrong-kernel", phase, "cpp"), str(result)
    assert found.line.endswith(program.__name__), found.line
    assert f"Because of it, the gradient of x of {program.__name__} is not finite" in found.reason
    assert found.numbers["compiled"] != found.numbers["eager"]


def test_such_a_kernel_is_not_accused_where_the_function_is_right() -> None:
    """An overflow on the way that does not reach the result: eager has none."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x == x, x, 1.0 / (x * 0.3 == torch.sort(x * 0.3)[0]).float())

    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(function)(torch.arange(1.0, 9.0).to(torch.bfloat16))
    assert not result, str(result)
