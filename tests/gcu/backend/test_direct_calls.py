"""Graphs of kernels alone are called without AOTAutograd's wrapper; what needs the wrapper keeps it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from tests.gcu.looking import compile_and_look

from kernelscope.gcu.execution.executor import CompiledGraph


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of a graph, whether AOTAutograd's functions are around it."""
    found: list[bool] = []
    original = CompiledGraph.__call__

    def looking(graph: CompiledGraph, args: list[Any]) -> list[Any]:
        frame: FrameType | None = sys._getframe(1)
        names = []
        while frame is not None:
            names.append(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        found.append(any(name.startswith("torch._functorch") for name in names))
        return original(graph, args)

    monkeypatch.setattr(CompiledGraph, "__call__", looking)
    return found


def called(f: Callable[..., Any], *args: Any) -> Any:
    compiled, look = compile_and_look(f)
    result = compiled(*args)
    assert look.kernels
    return result


def test_kernels_alone_are_called_directly(wrapped: list[bool]) -> None:
    x, y = torch.randn(8, 4), torch.randn(4)
    total, product = called(lambda x, y: (x + y, x * y), x, y)
    assert wrapped == [False]
    assert torch.equal(total, x + y)
    assert torch.equal(product, x * y)
    assert total._version == 0
    assert not total.requires_grad


def test_parameters_without_gradients_are_plain_tensors(wrapped: list[bool]) -> None:
    layer = torch.nn.LayerNorm(8)
    with torch.no_grad():
        compiled, _ = compile_and_look(layer)
        x = torch.randn(3, 8)
        torch.testing.assert_close(compiled(x), layer(x))
    assert wrapped == [False]


def changed(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def in_another_mode(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch._C._set_grad_enabled(False)
    return y + 1


@pytest.mark.parametrize(
    "f",
    [
        changed,
        lambda x: (x, x + 1),
        lambda x: (x.view(-1), x + 1),
        lambda x: (x + 1).t(),
        lambda x: (lambda y: (y, y))(x + 1),
        lambda x: (lambda y: (y, y[0]))(x + 1),
        lambda x: (x @ x.t()).sum() + torch.cumsum(x, 0).sum(),
    ],
)
def test_what_is_not_only_new_results_is_right(f: Callable[..., Any]) -> None:
    x = torch.randn(3, 3)
    given, expected_input = x.clone(), x.clone()
    found, expected = called(f, given), f(expected_input)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        torch.testing.assert_close(a, b)
        assert a._is_view() == b._is_view() or not b._is_view()
    assert torch.equal(given, expected_input)


def test_two_names_of_one_result_share_memory() -> None:
    first, second = called(lambda x: (lambda y: (y, y))(x + 1), torch.randn(3))
    assert first.data_ptr() == second.data_ptr()


def test_a_change_of_the_mode_of_autograd_stays(wrapped: list[bool]) -> None:
    try:
        found = called(in_another_mode, torch.ones(3))
        assert not torch.is_grad_enabled()
    finally:
        torch._C._set_grad_enabled(True)
    assert torch.equal(found, torch.full((3,), 3.0))


def test_gradients_go_through_the_wrapper(wrapped: list[bool]) -> None:
    x = torch.randn(5, requires_grad=True)
    called(lambda x: (x * x + x).sum(), x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() + 1)
    assert wrapped[0]


def test_sizes_that_vary(wrapped: list[bool]) -> None:
    compiled, _ = compile_and_look(lambda x: torch.tanh(x) + 1, dynamic=True)
    for count in (5, 9, 2):
        x = torch.randn(count, 3)
        torch.testing.assert_close(compiled(x), torch.tanh(x) + 1)
