"""Memory that is filled with a constant, what a function returns, and factors that an optimizer takes out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import kernelscope

_Fill = Callable[[torch.Tensor], object]
_FILLS: list[_Fill] = [
    lambda w: w.fill_(0.5),
    lambda w: w.zero_(),
    lambda w: w[3].zero_(),
    lambda w: w.copy_(torch.zeros(16, 12)),
]


def _train(last: _Fill | None = None, before: _Fill | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Linear(12, 16)
    model(torch.randn(10, 12)).square().mean().backward()
    with torch.no_grad():
        assert model.weight.grad is not None
        if before is not None:
            before(model.weight.grad)
        model.weight.add_(model.weight.grad, alpha=-0.1)
        if last is not None:
            last(model.weight)


@pytest.mark.parametrize("fill", _FILLS)
def test_weights_that_are_filled_are_named(fill: _Fill) -> None:
    result = kernelscope.compare(_train, lambda: _train(fill))
    assert result.first is not None, result.details()
    assert result.first.call.origin[0].function == "<lambda>", result.details()
    result = kernelscope.compare(lambda: _train(fill), _train)
    assert result.first is not None, result.details()
    assert result.first.kind == "stops", result.details()


def test_gradients_that_are_cleared_unread_are_named() -> None:
    result = kernelscope.compare(_train, lambda: _train(before=lambda g: g.zero_()))
    assert result.first is not None, result.details()
    assert result.first.call.origin[0].function == "<lambda>", result.details()


@pytest.mark.parametrize("is_last", [False, True])
def test_gradients_may_be_cleared_before_or_after_a_step(is_last: bool) -> None:
    def train(is_last: bool) -> None:
        torch.manual_seed(0)
        model = nn.Linear(12, 16)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            if not is_last:
                optimizer.zero_grad(set_to_none=False)
            model(torch.randn(10, 12)).square().mean().backward()
            optimizer.step()
            if is_last:
                optimizer.zero_grad(set_to_none=False)

    result = kernelscope.compare(lambda: train(is_last), lambda: train(not is_last))
    assert result.status == 0, result.details()


_X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
_W = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def _predict(how: str = "") -> tuple[torch.Tensor, ...]:
    one, two = _X @ _W, (_X @ _W.T).tanh()
    made = one.softmax(-1)
    if how == "constant":
        return one, two, torch.zeros_like(made)
    if how == "size":
        return one, two, made.sum(-1)
    if how == "form":
        return one, two, torch.einsum("td,vd->tv", made.roll(1, 0), _W)[None]
    return {"exchanged": (two, one, made), "early": (one, two, one)}.get(how, (one, two, made))


@pytest.mark.parametrize("how", ["constant", "size", "form", "exchanged", "early"])
def test_another_result_that_is_returned_is_an_error(how: str) -> None:
    result = kernelscope.compare(_predict, lambda: _predict(how))
    assert result.first is not None, result.details()
    assert (result.first.kind == "returns") == (how in ("exchanged", "early")), result.details()


def test_results_with_names_are_compared_by_name() -> None:
    def named(*names: str) -> dict[str, torch.Tensor]:
        made = dict(zip("abc", _predict(), strict=True))
        return {name: made[name] for name in names}

    assert kernelscope.compare(lambda: named(*"abc"), lambda: named(*"cab")).status == 0
    assert kernelscope.compare(lambda: named(*"abc"), lambda: [*named(*"abc").values()]).status == 0
    exchanged = kernelscope.compare(
        lambda: named(*"abc"), lambda: {"a": (made := named(*"abc"))["b"], "b": made["a"], "c": made["c"]}
    )
    assert exchanged.first is not None
    assert exchanged.first.kind == "returns"


def test_more_results_than_the_reference_has_are_a_note() -> None:
    result = kernelscope.compare(_predict, lambda: _predict()[:2])
    assert any("returns 3 tensors of floats and the other program 2:" in note for note in result.notes)
    assert not kernelscope.compare(_predict, _predict).notes


def test_a_result_of_another_form_is_compared() -> None:
    def one(is_wrong: bool = False) -> torch.Tensor:
        hidden = _X[None].tanh()
        return (hidden.roll(1, 1) if is_wrong else hidden) @ _W.T

    def other(is_wrong: bool = False) -> torch.Tensor:
        hidden = _X.tanh()
        return torch.einsum("td,vd->tv", hidden.roll(1, 0) if is_wrong else hidden, _W)[None]

    assert kernelscope.compare(one, other).status == 0
    assert kernelscope.compare(one, lambda: other(True)).status == 1


def test_complex_numbers_beside_real_ones() -> None:
    angle = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1, 0.01, 0.001]))

    def one() -> torch.Tensor:
        turned = torch.view_as_complex(_X.reshape(6, 4, 2)) * torch.polar(torch.ones_like(angle), angle)
        return (torch.view_as_real(turned).flatten(1) @ _W).tanh() @ _W.T

    def other() -> torch.Tensor:
        a, b, cos, sin = _X[:, 0::2], _X[:, 1::2], angle.cos(), angle.sin()
        return (torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(1) @ _W).tanh() @ _W.T

    result = kernelscope.compare(one, other)
    assert result.status == 0, result.details()


def test_a_factor_that_adam_takes_out_is_noted() -> None:
    def train(factor: float = 1.0) -> None:
        torch.manual_seed(0)
        model = nn.Linear(6, 10)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(2):
            optimizer.zero_grad()
            model(_X[:, :6]).square().mean().backward()
            if factor != 1:
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.grad.mul_(factor)
            optimizer.step()

    result = kernelscope.compare(train, lambda: train(64.0))
    assert result.status == 0 or result.problem, result.details()
    assert any("aten.mul_.Tensor" in note and "changes an input of" in note for note in result.notes), (
        result.details()
    )
    assert not kernelscope.compare(train, train).notes
