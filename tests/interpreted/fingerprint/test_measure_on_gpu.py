"""The kernel that compares a result with eager and float64, through Triton's interpreter on CPU memory."""

from __future__ import annotations

import math

import pytest
import torch

from kernelscope.shadowing.checks import measure_on_gpu
from kernelscope.shadowing.checks.measure import Sums, sums_by_torch

SPECIAL = [0.0, -0.0, 1.0, -2.5, 3e38, 1e300, math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_on_gpu, "BLOCK", 64)
    monkeypatch.setattr(measure_on_gpu, "_PROGRAMS_AT_MOST", 3)


def assert_alike(made: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor) -> None:
    found, expected = Sums(*measure_on_gpu.numbers(made, eager, wide)), sums_by_torch(made, eager, wide)
    assert (found.considered, found.bad, found.where_bad) == (
        expected.considered,
        expected.bad,
        expected.where_bad,
    )
    for name in ("worst", "eager_worst", "largest", "squares", "eager_squares", "along", "eager_along"):
        a, b = getattr(found, name), getattr(expected, name)
        are_nan = math.isnan(a) and math.isnan(b)
        assert a == b or are_nan or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300), name
    if math.isfinite(expected.worst) and expected.worst:
        assert found.where == expected.where


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 1000])
def test_numbers(dtype: torch.dtype, count: int) -> None:
    wide = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    made, eager = (wide * 1.01).to(dtype), wide.to(dtype)
    made[count // 2] += 1
    assert_alike(made, eager, wide)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_that_are_not_finite(dtype: torch.dtype) -> None:
    rows = torch.tensor([(c, e, r) for c in SPECIAL for e in SPECIAL for r in SPECIAL], dtype=torch.float64)
    made, eager, wide = rows[:, 0].to(dtype), rows[:, 1].to(dtype), rows[:, 2].contiguous()
    for i in range(0, len(rows), 81):
        part = slice(i, i + 81)
        assert_alike(made[part].contiguous(), eager[part].contiguous(), wide[part].contiguous())
