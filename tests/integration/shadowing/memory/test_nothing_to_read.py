"""Results that depend on no value that the kernel was given are judged all the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.integration.faults.wrong_element import wrong_element
from torch._inductor.graph import GraphLowering

import kernelscope
from kernelscope import ShadowResult


def places_of_one(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The place of the largest of one is 0: the kernel reads nothing."""
    row = x.unsqueeze(0)
    return torch.argmax(row, 0), torch.sort(row, dim=0).indices, torch.max(row, -2).indices


def one_element(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Inductor leaves complex numbers to ATen: `empty`, a view of it, then `index_put_`."""
    return torch.index_select(x, 0, places)


def shadowed(function: Callable[..., Any], *inputs: torch.Tensor) -> ShadowResult:
    torch.compiler.reset()
    with kernelscope.shadow() as result:
        torch.compile(function)(*inputs)
    return result


def is_judged(result: ShadowResult) -> bool:
    assert not result, str(result)
    return not result.unchecked and result.to_dict()["unjudged_launches"] == 0


def test_a_kernel_that_reads_nothing() -> None:
    assert is_judged(shadowed(places_of_one, torch.arange(4.0)))
    with wrong_element(0) as planted:
        result = shadowed(places_of_one, torch.arange(4.0))
    assert planted.kernel
    assert result.culprit is not None, str(result)
    assert result.culprit.kernel_name == planted.kernel


def test_memory_that_an_operator_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.tensor(1 - 2j), torch.tensor([0])
    assert is_judged(shadowed(one_element, *inputs))
    original = GraphLowering.codegen

    def twice(self: Any) -> Any:
        wrapper, kernels = original(self)
        wrapper.value = re.sub(r"(index_put_\.default\(\w+, \[\w+\], \w+)", r"\1 * 2", wrapper.value)
        return wrapper, kernels

    monkeypatch.setattr(GraphLowering, "codegen", twice)
    result = shadowed(one_element, *inputs)
    assert result.culprit is not None, str(result)
    assert result.culprit.kernel_name == "aten.index_put_.default"


def test_an_operator_that_leaves_a_result_empty_although_torch_foretold_its_size() -> None:
    table = torch.randn(10, 5, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.randn(5, dtype=torch.bfloat16, requires_grad=True)
    which, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 3])

    def bag(table: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(
            which, table, offsets, mode="sum", per_sample_weights=weights
        )

    torch.compiler.reset()
    with kernelscope.shadow() as result:
        torch.compile(bag)(table, weights).sum().backward()
    assert is_judged(result)
    assert not result.failures
