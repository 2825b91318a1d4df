"""An error in a program of another dtype is named at its line; rounding raises no alarm."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from tests.programs import more_training_programs, other_training_programs, training_programs
from tests.programs.training_programs import Setup

import kernelscope

_QUICK = {"stale", "transposed", "gradient", "clamp", "variance"}
_MODULES = (training_programs, more_training_programs, other_training_programs)
_PLANTED = [(module, name) for module in _MODULES for name in module.PLANTED]
_SETUPS = {
    "bfloat16": Setup(torch.bfloat16),
    "float16": Setup(torch.float16),
    "autocast": Setup(autocast=True),
    "compiled": Setup(compiled=True),
    "compiled-bfloat16": Setup(torch.bfloat16, compiled=True),
}
_LOW = _SETUPS["bfloat16"]
# Partial sums of gradients that bfloat16, by way of its casts, adds up in another order: no counterparts.
_IN_ANOTHER_ORDER = {"rotary": 4}
_QUICK_PAIRS = {("experts", "bfloat16"), ("large_logits", "autocast"), ("long_memory", "bfloat16")}


def _lines(module: ModuleType, name: str) -> set[int]:
    with open(str(module.__file__), encoding="utf-8") as text:
        return {number for number, line in enumerate(text, start=1) if f"# planted: {name}" in line}


@pytest.mark.parametrize(
    ("module", "name"),
    [each if each[1] in _QUICK else pytest.param(*each, marks=pytest.mark.slow) for each in _PLANTED],
)
def test_the_line_of_an_error_is_named(module: ModuleType, name: str) -> None:
    program = module.PLANTED[name]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_LOW, True))
    assert result.status == 1, result.details()
    first = result.first
    assert first is not None
    named = [call for call in (first.call, first.reads, first.missing, first.reference) if call is not None]
    assert {call.origin[0].line for call in named if call.origin} & _lines(module, name), result.details()


@pytest.mark.parametrize(
    ("module", "name"),
    [each if each[1] in _QUICK else pytest.param(*each, marks=pytest.mark.slow) for each in _PLANTED],
)
def test_no_alarm_without_the_error(module: ModuleType, name: str) -> None:
    program = module.PLANTED[name]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_LOW, False))
    assert result.status == 0, result.details()
    counterparts = result.values["reference"] - _IN_ANOTHER_ORDER.get(name, 0)
    assert result.values["matched"] == counterparts, result.details()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pair if pair in _QUICK_PAIRS else pytest.param(*pair, marks=pytest.mark.slow)
        for pair in ((name, how) for how in _SETUPS for name in more_training_programs.HEALTHY)
    ],
)
def test_rounding_raises_no_alarm(name: str, how: str) -> None:
    program = more_training_programs.HEALTHY[name]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_SETUPS[how], False))
    assert result.status == 0, result.details()
    assert result.values["matched"] > result.values["reference"] / 2, result.details()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["float16", "autocast"])
@pytest.mark.parametrize("name", other_training_programs.PLANTED)
def test_rounding_of_other_layers_raises_no_alarm(name: str, how: str) -> None:
    program = other_training_programs.PLANTED[name]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_SETUPS[how], False))
    assert result.status == 0, result.details()


@pytest.mark.slow
def test_a_mask_that_compiled_code_saves_is_that_of_its_own_step() -> None:
    program = training_programs.PLANTED["clamp"]
    how = _SETUPS["compiled-bfloat16"]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(how, False))
    assert result.status == 0, result.details()


def test_amplifiers_have_a_gain() -> None:
    program = more_training_programs.HEALTHY["large_logits"]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_LOW, False))
    assert any("softmax" in each.call.name and each.gain > 8 for each in result.amplifiers), result.details()


def test_a_sum_that_cancels_is_an_amplifier() -> None:
    """In bfloat16 numbers near 1000 are whole, and what is left of their mean is zero."""
    torch.manual_seed(2)
    x = torch.randn(8, 64)

    def centred(x: torch.Tensor) -> torch.Tensor:
        return (x + 1000).mean(-1) - 1000

    result = kernelscope.compare(centred, centred, (x,), other_args=(x.bfloat16(),))
    assert result.status == 0, result.details()
    assert [each.call.name for each in result.amplifiers if each.gain > 100] == ["aten.sub.Tensor"]


def test_a_result_that_is_not_finite_is_said() -> None:
    def cubed(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    x = torch.linspace(60, 120, 32)
    result = kernelscope.compare(cubed, cubed, (x,), other_args=(x.half(),))
    assert result.status == 1
    assert "one of the two is infinite, NaN or not zero" in str(result)


def test_arguments_and_modules_are_put_back() -> None:
    model, x = torch.nn.Linear(4, 4), torch.randn(8, 4)
    low = torch.nn.Linear(4, 4).to(torch.bfloat16)
    low.load_state_dict(model.state_dict())
    before = [p.detach().clone() for p in [*model.parameters(), *low.parameters(), x]]

    def step(module: torch.nn.Module, given: torch.Tensor) -> None:
        loss = module(given).float().square().mean()
        loss.backward()
        with torch.no_grad():
            for p in module.parameters():
                p.sub_(p.grad)

    result = kernelscope.compare(step, step, (model, x), other_args=(low, x.to(torch.bfloat16)))
    assert result.status == 0, result.details()
    after = [*model.parameters(), *low.parameters(), x]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(p.grad is None for p in [*model.parameters(), *low.parameters()])
