"""Elements that an operator never wrote are no evidence; all others are."""

from __future__ import annotations

import pytest
import torch

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.reference.written_arguments import filled_memory, unwritten


def half(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.empty(8, dtype=dtype)
    made[:4] = 1
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_what_was_not_written_is_found(dtype: torch.dtype) -> None:
    value = half(dtype)
    value[4:] = 7  # as memory might have it
    found = unwritten(value, lambda: half(dtype))
    assert found is not None
    assert found.tolist() == [False] * 4 + [True] * 4


def test_nothing_is_found_where_all_is_written() -> None:
    assert unwritten(torch.ones(8), lambda: torch.empty(8).fill_(1)) is None
    nan = torch.full((8,), torch.nan)
    assert unwritten(nan, lambda: nan / nan) is None


def test_settings_are_as_they_were() -> None:
    before = torch.get_deterministic_debug_mode()
    with filled_memory():
        assert torch.empty(3).isnan().all()
    assert torch.get_deterministic_debug_mode() == before


@pytest.mark.parametrize("wrong", [0, 5])
def test_only_written_elements_can_be_wrong(wrong: int) -> None:
    eager = torch.ones(8)
    made, wide = eager.clone(), eager.double()
    made[wrong] = 3e19
    loose = torch.arange(8) >= 4
    verdict = judge(made, eager, lambda: wide, lambda: wide, 1e-7, unwritten=lambda: loose)
    assert verdict.is_wrong == (wrong < 4)
    assert judge(made, eager, lambda: wide, lambda: wide, 1e-7).is_wrong
