"""Steps of the compiler that change nothing but the imaginary part of complex numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
import torch

from kernelscope.shadowing.steps import blame, difference
from kernelscope.shadowing.steps.difference import Made
from kernelscope.shadowing.steps.functionalized import differ
from kernelscope.shadowing.steps.side import Side

aten = torch.ops.aten


def right() -> torch.Tensor:
    return torch.tensor([1 + 2j, 3 + 4j])


def wrong() -> torch.Tensor:
    return torch.tensor([1 + 2j, 3 + 9j])


class _Named(NamedTuple):
    name: str


def test_functionalization() -> None:
    assert differ(right(), wrong())
    assert not differ(right(), right())


def test_integers_that_float64_cannot_hold() -> None:
    one = torch.tensor([2**53, 2**53 + 1])
    assert differ(one, one - torch.tensor([0, 1]))
    assert not differ(one, one.clone())


@pytest.mark.parametrize(
    ("decomposition", "is_wrong"),
    [(lambda x: x.reciprocal(), False), (lambda x: x.reciprocal().real + 1j, True)],
)
def test_a_decomposition(monkeypatch: pytest.MonkeyPatch, decomposition: Any, is_wrong: bool) -> None:
    monkeypatch.setattr(blame, "decomposition_of", lambda _: decomposition)
    x = right()
    with blame.EachOperator() as operators:
        torch.reciprocal(x)
    assert (operators.wrong is not None) is is_wrong


def test_a_write_to_an_input() -> None:
    eps = torch.finfo(torch.float32).eps
    side = cast("Side", SimpleNamespace(eps=eps, given={_Named("x"): right()}))
    for value, is_wrong in ((wrong(), True), (right(), False)):
        verdict = difference.compared_with_input(side, "input x", Made(value))
        assert not isinstance(verdict, str)
        assert verdict.is_wrong is is_wrong
