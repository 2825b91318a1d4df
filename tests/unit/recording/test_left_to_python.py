"""Compiled functions that Dynamo leaves to Python because of where they are called, beside compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import kernelscope

X = torch.ones(4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of other tests
    yield
    torch._dynamo.reset()


def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def without_breaks(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def under_a_mode(function: Callable[..., Any]) -> None:
    with FlopCounterMode(display=False):
        function(X)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (lambda function: torch.func.vmap(function)(torch.ones(3, 4)), "functorch"),
        (lambda function: torch.func.jvp(function, (X,), (X,)), "functorch"),
        (under_a_mode, "torch dispatch mode"),
    ],
    ids=["vmap", "jvp", "dispatch mode"],
)
def test_what_was_left_to_python_because_of_where_it_is_called(
    calls: Callable[[Any], Any], says: str
) -> None:
    with kernelscope.record() as run:
        torch.compile(without_breaks)(X)
        calls(torch.compile(plus))
    assert len(run) == 1
    (finding,) = run.findings
    assert finding.kind == "ran-in-eager"
    assert f"plus ({__file__}:" in finding.message
    assert says in finding.message
    assert 'ops="all"' in finding.message
