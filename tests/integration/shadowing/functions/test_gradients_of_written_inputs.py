"""Functions that write to an input, return one value twice, or return views: each gradient counts once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.programs.wrong_functions import wrong_gradients

import kernelscope

Results = tuple[torch.Tensor, ...]


def returned_twice(x: torch.Tensor, w: torch.Tensor) -> Results:
    y = (x @ w).sin()
    return y, y


def returned_with_a_view(x: torch.Tensor, w: torch.Tensor) -> Results:
    y = (x @ w).sin()
    return y, y.view(-1), y


def written_and_returned(x: torch.Tensor, w: torch.Tensor) -> Results:
    h, auxiliary = x @ w, w.sum()
    torch._dynamo.graph_break()
    h += 0.5 * auxiliary.sin()
    return h, auxiliary


def written_and_viewed(x: torch.Tensor, w: torch.Tensor) -> Results:
    h = x @ w
    torch._dynamo.graph_break()
    h *= 2
    return h, h.view(-1)


def written_in_part(x: torch.Tensor, w: torch.Tensor) -> Results:
    h = x @ w
    torch._dynamo.graph_break()
    h[0] *= 2
    return h.sin().sum() + h[1].sum(), h


def written_twice(x: torch.Tensor, w: torch.Tensor) -> Results:
    h = x @ w
    torch._dynamo.graph_break()
    h += 1
    middle = h * 3
    h *= 2
    return middle, h, h


def under_two_names(x: torch.Tensor, w: torch.Tensor) -> Results:
    h = x @ w
    other = h
    torch._dynamo.graph_break()
    other += 1
    return other, h


PROGRAMS = [
    returned_twice, returned_with_a_view, written_and_returned, written_and_viewed, written_in_part,
    written_twice, under_two_names,
]  # fmt: skip


def trained(program: Any, backend: Any = "inductor") -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend)
    with kernelscope.shadow() as result:
        for _ in range(2):
            results = compiled(torch.randn(3, 4), torch.randn(4, 4, requires_grad=True))
            torch.stack([each.square().sum() * (i + 1) for i, each in enumerate(results)]).sum().backward()
    return result


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_alarm(program: Any) -> None:
    result = trained(program)
    assert result.status == 0, str(result)
    assert not [each for each in result.to_dict()["unchecked"] if "gradient" in each["argument"]]


@pytest.mark.parametrize("program", [returned_with_a_view, written_and_returned, written_and_viewed])
def test_a_wrong_gradient_is_named(program: Any) -> None:
    result = trained(program, wrong_gradients)
    assert result.status == 1, str(result)
    assert "gradient" in str(result.culprit)


def test_inputs_that_share_written_memory_have_no_gradients_of_their_own() -> None:
    def written_through_a_view(x: torch.Tensor, w: torch.Tensor) -> Results:
        h = x @ w
        part = h[1:]
        torch._dynamo.graph_break()
        part *= 2
        return h.sum(), part

    result = trained(written_through_a_view)
    assert not result, str(result)
    assert "the gradient of part: it shares memory with another input" in str(result)
