"""Errors that bfloat16 hides: another number of the same call is named, and what cannot be told is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import kernelscope

_LOW = torch.bfloat16


def _x(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(24, 32, generator=torch.Generator().manual_seed(0)).to(dtype)


def _norm(dtype: torch.dtype, eps: float) -> torch.Tensor:
    return F.layer_norm(_x(dtype), (32,), eps=eps).sin()


def _gelu(dtype: torch.dtype, approximate: str) -> torch.Tensor:
    return F.gelu(_x(dtype), approximate=approximate).sin()


def _masked(dtype: torch.dtype, _: None) -> torch.Tensor:
    scores = _x(dtype)
    return scores.masked_fill(scores > 1, torch.finfo(dtype).min).softmax(-1)


def _clamped(dtype: torch.dtype, most: float) -> torch.Tensor:
    return _x(dtype).clamp(max=most).sin()


def _scaled_by_what_was_read(dtype: torch.dtype, _: None) -> torch.Tensor:
    x = _x(dtype)
    return (x * x.abs().max().item()).sin()


def _compared(program: Callable[..., Any], ours: Any, theirs: Any) -> Any:
    return kernelscope.compare(lambda: program(torch.float32, ours), lambda: program(_LOW, theirs))


@pytest.mark.parametrize(
    ("program", "ours", "theirs", "number", "reference"),
    [
        (_norm, 1e-5, 1e-3, "eps=0.001", "eps=1e-05"),
        (_gelu, "none", "tanh", "approximate=tanh", "approximate=none"),
    ],
)
def test_a_number_whose_effect_is_within_rounding_is_named(
    program: Callable[..., Any], ours: Any, theirs: Any, number: str, reference: str
) -> None:
    result = _compared(program, ours, theirs)
    assert result.status == 1, result.details()
    first = result.first
    assert (first.kind, first.number, first.reference_number) == ("number", number, reference)
    assert first.difference < first.noise, result.details()  # in float64
    assert first.call.origin[0].function == program.__name__
    assert f"{number}, and in the reference {reference}" in str(result)


@pytest.mark.parametrize(
    ("program", "ours", "theirs"),
    [
        (_norm, 1e-5, 1e-5),
        (_norm, 1e-12, 1e-13),  # no float32 shows that
        (_masked, None, None),  # the smallest number of each dtype
        (_clamped, 100.0, 200.0),  # no number is that large
        (_scaled_by_what_was_read, None, None),
    ],
)
def test_numbers_that_change_nothing_raise_no_alarm(
    program: Callable[..., Any], ours: Any, theirs: Any
) -> None:
    result = _compared(program, ours, theirs)
    assert result.status == 0, result.details()


def test_recorded_runs_have_the_numbers_too(tmp_path: Path) -> None:
    for name, dtype, eps in (("first", torch.float32, 1e-5), ("second", _LOW, 1e-3)):
        with kernelscope.record(path=tmp_path / f"{name}.kscope", values="save", ops="all"):
            _norm(dtype, eps)
    result = kernelscope.diff(tmp_path / "first.kscope", tmp_path / "second.kscope", calibrate=True)
    assert result.first is not None, result.details()
    assert result.first.number == "eps=0.001"


def test_it_is_said_how_small_an_error_cannot_be_told_from_rounding() -> None:
    alike = _compared(_norm, 1e-5, 1e-5)
    median, most = alike.smallest
    assert 0.001 < median <= most < 0.2
    assert f"Errors below {median:.2g} of a call's result" in str(alike)
    in_float32 = kernelscope.compare(lambda: _norm(torch.float32, 1e-5), lambda: _norm(torch.float32, 1e-5))
    assert in_float32.smallest[1] < 1e-4


def _moments(dtype: torch.dtype, beta: float) -> None:
    """Steps of Adam, of which the first makes up for the beta."""
    x = _x(dtype)
    square = (x * x).mul(1 - beta)
    (x / (square / (1 - beta)).sqrt()).sin()


def test_a_difference_that_is_made_up_for_is_noted() -> None:
    result = _compared(_moments, 0.95, 0.9)
    assert result.status == 0, result.details()
    note = next(note for note in result.notes if "do not show whether that is an error" in note)
    assert "aten.mul.Tensor (forward)" in note
    assert _compared(_moments, 0.9, 0.9).notes == []


def _average(steps_first: bool) -> list[torch.Tensor]:
    """An average of weights, taken after each step or before it."""
    weight = _x(torch.float32).requires_grad_()
    average = weight.detach().clone()
    for _ in range(3):
        weight.square().sum().backward()
        with torch.no_grad():
            if not steps_first:
                average.lerp_(weight, 0.1)
            weight.sub_(0.1 * weight.grad)
            if steps_first:
                average.lerp_(weight, 0.1)
            weight.grad = None
    return [average.clone()]


def test_what_the_reference_had_a_step_before_explains_nothing() -> None:
    assert kernelscope.compare(lambda: _average(True), lambda: _average(True)).status == 0
    result = kernelscope.compare(lambda: _average(True), lambda: _average(False))
    assert result.first is not None, result.details()
    assert result.first.call.name == "aten.lerp_.Scalar"
