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


def _rows(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 6, 8, generator=generator).to(dtype) for _ in range(3)]


def _whole(dtype: torch.dtype) -> torch.Tensor:
    q, k, v = _rows(dtype)
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    return ((q @ k.mT) * 8**-0.5).masked_fill(later, -torch.inf).softmax(-1) @ v


def _with_fixed_cache(dtype: torch.dtype, scale: float) -> torch.Tensor:
    """The scores of tokens that are not in the cache yet are zero, and masked."""
    (q, k, v), made = _rows(dtype), []
    keys, values = (torch.zeros(2, 6, 8, dtype=dtype) for _ in range(2))
    for t in range(6):
        keys[:, t : t + 1], values[:, t : t + 1] = k[:, t : t + 1], v[:, t : t + 1]
        scores = (q[:, t : t + 1] @ keys.mT) * scale
        made.append(scores.masked_fill(torch.arange(6) > t, -torch.inf).softmax(-1) @ values)
    return torch.cat(made, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scores_that_are_masked_may_be_anything(dtype: torch.dtype) -> None:
    right = kernelscope.compare(_whole, _with_fixed_cache, (torch.float32,), other_args=(dtype, 8**-0.5))
    assert right.status == 0, right.details()
    wrong = kernelscope.compare(_whole, _with_fixed_cache, (torch.float32,), other_args=(dtype, 8**-0.4))
    assert wrong.status == 1, wrong.details()
