"""What is measured before a decision: the compiled library agrees with torch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.shadowing.checks.decisions import DTYPES

from kernelscope.shadowing.checks.measure import LIBRARY, Sums, is_equal, sums, sums_by_torch

floats = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.lists(st.tuples(floats, floats, floats), min_size=1, max_size=40), st.sampled_from(DTYPES))
@settings(max_examples=150, deadline=None)
def test_the_library_agrees_with_torch(rows: list[tuple[float, float, float]], dtype: torch.dtype) -> None:
    if LIBRARY.get() is None:
        pytest.skip("there is no C++ compiler")
    values = torch.tensor(rows, dtype=torch.float64)
    made, eager = values[:, 0].to(dtype).contiguous(), values[:, 1].to(dtype).contiguous()
    wide = values[:, 2].contiguous()
    _assert_alike(sums(made, eager, wide), sums_by_torch(made, eager, wide))


def test_the_library_agrees_with_torch_on_many_threads() -> None:
    x = torch.randn(200_000, dtype=torch.float64)
    made, eager = (x * 1.0001).float(), x.float()
    _assert_alike(sums(made, eager, x), sums_by_torch(made, eager, x))


def _assert_alike(a: Sums, b: Sums) -> None:
    assert (a.considered, a.bad, a.where_bad) == (b.considered, b.bad, b.where_bad)
    for name in ("worst", "eager_worst", "largest", "squares", "eager_squares", "reference_squares"):
        x, y = getattr(a, name), getattr(b, name)
        assert x == y or math.isclose(x, y, rel_tol=1e-9) or (math.isinf(x) and math.isinf(y)), name


def test_equal_means_bit_by_bit() -> None:
    x = torch.randn(4, 5)
    assert is_equal(x, x.clone())
    assert is_equal(x.t(), x.clone().t())
    assert not is_equal(x, x.double())
    y = x.clone()
    y[1, 1] = y[1, 1] * (1 + 1e-6)
    assert not is_equal(x, y)
