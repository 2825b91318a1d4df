"""Gradients under autocast: their digits are those of its dtype, and few rows amplify what is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table
from torch._inductor import decomposition

import kernelscope
from kernelscope import ShadowResult

_BACKWARD = torch.ops.aten.native_batch_norm_backward.default


def shadowed(rows: int, depth: int) -> ShadowResult:
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.GELU()) for _ in range(depth)]
    network = nn.Sequential(*layers, nn.Linear(32, 32))
    with kernelscope.shadow() as result:
        with torch.autocast("cpu", torch.bfloat16):
            # No kernels: the function as a whole is what is judged here.
            made = torch.compile(network, backend="aot_eager_decomp_partition")(torch.randn(rows, 32))
        made.backward(torch.randn(made.shape).to(made.dtype))
    return result


@contextmanager
def scaled_gradients(factor: float) -> Iterator[None]:
    right = decomposition_table[_BACKWARD]

    def wrong(*args: Any) -> tuple[Any, ...]:
        first, *others = right(*args)
        return (first * factor, *others)

    table = {_BACKWARD: wrong}
    with (
        mock.patch.dict(decomposition.decompositions, table),
        mock.patch.dict(decomposition_table, table),
    ):
        decomposition.fast_random_decomps.cache_clear()  # a copy of the table
        yield
    decomposition.fast_random_decomps.cache_clear()


@pytest.mark.parametrize(("rows", "depth"), [(2, 1), (3, 1), (2, 4), (3, 4), (4, 4)])
def test_no_alarm(rows: int, depth: int) -> None:
    result = shadowed(rows, depth)
    assert result.status == 0, str(result)


def test_a_wrong_formula_is_named() -> None:
    with scaled_gradients(0.9):
        result = shadowed(6, 3)
    assert result.status == 1, str(result)
