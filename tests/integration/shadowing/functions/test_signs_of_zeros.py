"""A zero with the wrong sign that no kernel is to blame for: the whole function is compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch._inductor.decomposition import select_decomp_table

import kernelscope
from kernelscope import ShadowResult
from kernelscope.shadowing.checks.verdict_record import WRONG_SIGN

aten = torch.ops.aten


def signs_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x, y) * 2


def zero_times(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * -0.0 / y


def sum_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x, y) + 0  # of a sum no sign is promised


def shadowed(function: Callable[..., Any]) -> ShadowResult:
    torch.compiler.reset()
    with kernelscope.shadow() as result:
        torch.compile(function)(torch.tensor([0.0, 1, -2, 0]), torch.tensor([-1.0, 1, -1, 1]))
    return result


def without_signs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where((y < 0) & (x != 0), -x.abs(), x.abs())


@pytest.mark.parametrize("function", [signs_of, zero_times, sum_of])
def test_right_functions(function: Callable[..., Any]) -> None:
    assert not shadowed(function)


def test_a_decomposition_that_loses_the_sign_of_zeros_is_found() -> None:
    table = {aten.copysign.Tensor: without_signs}
    with mock.patch.dict(select_decomp_table(), table):
        wrong, undefined = shadowed(signs_of), shadowed(sum_of)
    assert wrong.culprit is not None, str(wrong)
    assert WRONG_SIGN in wrong.culprit.reason
    assert "0 where eager has -0, in 1 of 4 elements" in str(wrong)
    assert not undefined
