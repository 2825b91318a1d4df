"""What one program computes at once and the other in steps: several weights, sequences and windows."""

from __future__ import annotations

import pytest
import torch
from tests.programs import attention_in_steps
from tests.programs.attention_in_steps import Attention, at_once, in_steps

import kernelscope
from kernelscope.comparison.result import ComparisonResult


def _model(dtype: torch.dtype = torch.float32) -> Attention:
    torch.manual_seed(0)
    return Attention().to(dtype)


def _sequences(*lengths: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(3, n, 16, generator=generator) * scale).bfloat16().to(dtype) for n in lengths]


def _assert_named(result: ComparisonResult, bug: str) -> None:
    assert result.status == 1, result.details()
    with open(str(attention_in_steps.__file__), encoding="utf-8") as text:
        lines = {n for n, line in enumerate(text, start=1) if f"# planted: {bug}" in line}
    assert result.first is not None
    assert result.first.call.origin[0].line in lines, result.details()


@pytest.mark.parametrize(("lengths", "window"), [((6,), 99), ((5, 6), 99), ((5, 5), 99), ((7,), 3)])
def test_what_is_right_raises_no_alarm(lengths: tuple[int, ...], window: int) -> None:
    given = _sequences(*lengths)
    result = kernelscope.compare(at_once, in_steps, (_model(), given, window))
    assert result.status == 0, result.details()
    assert min(result.shares.values()) > 0.75, result.details()


def test_a_cache_that_is_not_reset_is_named_where_it_is_read() -> None:
    given = _sequences(5, 6)
    result = kernelscope.compare(
        at_once, in_steps, (_model(), given), other_args=(_model(), given, 99, "reset")
    )
    _assert_named(result, "reset")


def test_a_window_that_is_too_short_is_named_at_its_scores() -> None:
    given = _sequences(7)
    result = kernelscope.compare(
        at_once, in_steps, (_model(), given, 4), other_args=(_model(), given, 4, "window")
    )
    _assert_named(result, "window")


@pytest.mark.parametrize("bug", ["", "cap"])
def test_a_wrong_term_that_the_rounding_of_a_sum_hides(bug: str) -> None:
    given, low = _sequences(7, scale=2.0), _sequences(7, scale=2.0, dtype=torch.bfloat16)
    result = kernelscope.compare(
        at_once, in_steps, (_model(), given), other_args=(_model(torch.bfloat16), low, 99, bug)
    )
    if bug:
        _assert_named(result, bug)
    else:
        assert result.status == 0, result.details()
