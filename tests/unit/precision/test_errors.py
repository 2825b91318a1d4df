"""Errors in units of the last place, against numpy's spacing and against steps between codes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelscope.precision.errors import error_of
from kernelscope.precision.formats import steps_of


def _wide(count: int = 400) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, generator=generator, dtype=torch.float64) * 10.0 ** torch.arange(
        -40, 40, 80 / count
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_unit_in_the_last_place_is_numpys_spacing(dtype: type) -> None:
    wide = _wide()
    fits = wide[wide.abs() < float(np.finfo(dtype).max)]
    toward_zero = fits.numpy().astype(dtype)
    too_far = np.abs(toward_zero.astype(np.float64)) > np.abs(fits.numpy())
    toward_zero[too_far] = np.nextafter(toward_zero[too_far], dtype(0))
    torch_dtype = torch.float32 if dtype is np.float32 else torch.float16
    expected = np.abs(np.spacing(toward_zero).astype(np.float64))
    assert np.array_equal(steps_of(fits, torch_dtype).numpy(), expected)


def test_so_many_codes_away_is_so_many_ulp() -> None:
    exact = torch.tensor([1.25, -3.0, 1e-3, 700.0], dtype=torch.bfloat16)
    for away in (0, 1, 3):
        made = (exact.view(torch.int16) + away).view(torch.bfloat16)
        found = error_of(made, exact.double())
        assert found is not None
        assert found.max_ulp == found.median_ulp == away
        apart = (made.double() - exact.double()).abs()
        assert found.max_relative == pytest.approx(float((apart / exact.double().abs()).max()))
        assert found.relative == pytest.approx(float(apart.norm() / exact.double().norm()))


def test_rounding_to_nearest_is_at_most_half_an_ulp() -> None:
    wide = _wide()
    for dtype in (torch.float32, torch.bfloat16):
        fits = wide[wide.abs() < torch.finfo(dtype).max / 2]
        found = error_of(fits.to(dtype), fits)
        assert found is not None
        assert 0.3 < found.max_ulp <= 0.5 + 1e-9 or dtype is torch.float32
        assert found.max_ulp <= 0.51


def test_what_does_not_fit_is_counted_and_not_averaged() -> None:
    wide = torch.tensor([1.0, 1e6, 2.0, torch.nan, torch.inf], dtype=torch.float64)
    made = torch.tensor([1.0, torch.inf, torch.nan, torch.nan, torch.inf], dtype=torch.float16)
    found = error_of(made, wide)
    assert found is not None
    assert (found.too_large, found.not_finite, found.max_ulp) == (1, 1, 0.0)


def test_dtypes_without_an_error_to_measure() -> None:
    assert error_of(torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float64)) is None
    assert error_of(torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)) is None
    complex_error = error_of(torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex128))
    assert complex_error is not None
    assert complex_error.max_ulp == 0
