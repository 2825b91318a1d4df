"""TF32 in one of two programs: rounding, with the first call that has fewer digits; an error is still one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional as F

import kernelscope

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def same_setting_afterwards() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def two_products(precision: str, scale: float = 1.0) -> Function:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        torch.set_float32_matmul_precision(precision)
        hidden = F.gelu(x.cos() @ w)
        return (hidden * scale) @ w.t()

    return function


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(64, 256, device="cuda"), torch.randn(256, 512, device="cuda")


@pytest.mark.parametrize(
    ("reference", "other", "digits"),
    [("highest", "high", ("tf32", "float32")), ("high", "highest", ("float32", "tf32"))],
)
def test_the_first_product_is_named(reference: str, other: str, digits: tuple[str, str]) -> None:
    result = kernelscope.compare(two_products(reference), two_products(other), inputs())
    assert result.status == 0, result.details()
    (found,) = result.fewer_digits
    assert (found.digits, found.reference_digits) == digits
    assert (found.call.name, found.times) == ("aten.mm.default", 2)
    assert found.call.index == 1  # after the cosine
    assert 1e-6 < found.difference < 1e-2
    assert f"computes in {digits[0]}, and the reference in {digits[1]}" in str(result)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_nothing_is_said_of_programs_with_one_setting(precision: str) -> None:
    result = kernelscope.compare(two_products(precision), two_products(precision), inputs())
    assert (result.status, result.fewer_digits) == (0, []), result.details()


def test_an_error_beside_it_is_named() -> None:
    result = kernelscope.compare(two_products("highest"), two_products("high", scale=1.01), inputs())
    assert result.first is not None, result.details()
    assert result.first.call.name == "aten.mul.Tensor", result.details()
