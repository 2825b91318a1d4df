"""Numbers beside tensors: dtypes that mix, numbers that do not fit, limits, creation of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.gcu.backend.compared_with_eager import INF, NAN, TOLERANCE, check_all, compare
from tests.gcu.looking import compile_and_look


def test_mixed_dtypes() -> None:
    f, i, b = torch.randn(4, 6), torch.randint(0, 5, (4, 6)), torch.rand(4, 6) > 0.5

    def everything(f: torch.Tensor, i: torch.Tensor, b: torch.Tensor) -> Any:
        half = f.to(torch.bfloat16)
        return (
            f + i,
            i * b,
            f * b,
            half + f,
            i / 2,
            i + 1.5,
            half * 2,
            (f > i).to(torch.int32),
            i.to(torch.float16),
        )

    check_all({"all": lambda *a: torch.stack([t.double() for t in everything(*a)])}, [f, i, b])
    compiled, _ = compile_and_look(everything)
    for got, expected in zip(compiled(f, i, b), everything(f, i, b), strict=True):
        compare("mixed", got, expected, got.dtype if got.dtype in TOLERANCE else torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_become_halves_first_as_in_eager(dtype: torch.dtype) -> None:
    x = (torch.randn(2000) * 2).to(dtype)
    x[:3] = torch.tensor([0.1, INF, -INF], dtype=dtype)  # 0.1 is no half: it must equal the rounded number
    whole, zero_dim = torch.randint(-5000, 5000, (2000,)), torch.tensor(0.1, dtype=torch.float64)

    def everything(x: torch.Tensor, whole: torch.Tensor, zero_dim: torch.Tensor) -> Any:
        return (
            x == 0.1, x < 0.1, x >= 0.1, x == zero_dim, x > zero_dim, x + 0.1, x - 0.1, x * 0.1, x / 0.1,
            torch.fmod(x, 0.1), torch.remainder(x, 0.1), x + 1e10, x == 1e10, x + whole, x * whole, x > whole,
            x + zero_dim, x * zero_dim,
        )  # fmt: skip

    compiled, look = compile_and_look(everything)
    args = (x, whole, zero_dim)
    for number, (got, expected) in enumerate(zip(compiled(*args), everything(*args), strict=True)):
        torch.testing.assert_close(
            got, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=number: f"{n}: {m}"
        )
    assert not look.fallbacks


def test_numbers_that_do_not_fit_wrap_as_in_eager() -> None:
    small, byte = torch.tensor([-128, 0, 44, 127], dtype=torch.int8), torch.tensor([0, 31, 255]).byte()

    def everything(small: torch.Tensor, byte: torch.Tensor) -> Any:
        return small < 300, byte > -3, byte.clamp(min=-3), byte + 300, small == 300

    compiled, _ = compile_and_look(everything)
    for got, expected in zip(compiled(small, byte), everything(small, byte), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize(
    "clamp",
    [
        lambda x: x.clamp(max=-3),
        lambda x: x.clamp(min=-3, max=300),
        lambda x: x.clamp(min=300),
        lambda x: x.char().clamp(max=300),
        lambda x: x.char().clamp(min=-129, max=128),
    ],
    ids=["max=-3", "min=-3, max=300", "min=300", "int8, max=300", "int8, min=-129, max=128"],
)
def test_limits_that_do_not_fit_do_what_this_torch_does(
    clamp: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """They wrap, saturate or are refused, depending on torch and on the limit."""
    byte = torch.tensor([0, 31, 255]).byte()
    compiled, _ = compile_and_look(clamp)
    try:
        expected = clamp(byte)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            compiled(byte)
    else:
        assert torch.equal(compiled(byte), expected)


def test_any_number_is_a_boolean() -> None:
    def everything(x: torch.Tensor) -> Any:
        return (
            torch.full((3,), 5, dtype=torch.bool), torch.full((3,), 0.1, dtype=torch.bool), x + True,
            torch.full_like(x, 0), torch.full((2,), NAN, dtype=torch.bool), x.new_full((2,), 256),
            x.clone().fill_(-3),
        )  # fmt: skip

    compiled, look = compile_and_look(everything)
    x = torch.tensor([True, False])
    for got, expected in zip(compiled(x), everything(x), strict=True):
        assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))  # their bytes: 0 or 1
    assert not look.fallbacks


def test_creation() -> None:
    def everything(x: torch.Tensor) -> Any:
        return (
            torch.arange(5), torch.arange(2, 20, 3), torch.arange(10, 0, -2), torch.full((2, 3), 7.0),
            torch.zeros_like(x), torch.ones(3, dtype=torch.int64), x.new_full((2,), 3), torch.zeros(()),
            torch.cat([x, x + 1]), torch.cat([x, x * 2], 1), torch.stack([x, x], 1), x.clone(),
            torch.arange(6, dtype=torch.float32) * 0.5,
        )  # fmt: skip

    compiled, look = compile_and_look(everything)
    x = torch.randn(3, 4)
    for number, (got, expected) in enumerate(zip(compiled(x), everything(x), strict=True)):
        compare(str(number), got, expected, got.dtype)
    assert not look.fallbacks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_what_is_no_byte_wraps_on_any_machine(dtype: torch.dtype) -> None:
    compiled, _ = compile_and_look(lambda x: x.to(torch.uint8))
    given = torch.tensor([-5.6, 300.0, -1.0, 256.0, 2.0**33, 7.0] * 7, dtype=dtype)
    assert compiled(given).tolist() == [251, 44, 255, 0, 0, 7] * 7


def test_ranges_of_fractions_are_atens() -> None:
    def everything() -> Any:
        return torch.arange(0.5, 5, 1.5, dtype=torch.int64), torch.arange(0, 1, 0.25), torch.arange(1.5, 4)

    compiled, look = compile_and_look(everything)
    for got, expected in zip(compiled(), everything(), strict=True):
        assert torch.equal(got, expected)
    assert {f.target for f in look.fallbacks} == {"aten.arange.start_step"}
