"""Rounding to narrow formats and counting what is lost, against lists of every number that a format has."""

from __future__ import annotations

import bisect
import math

import pytest
import torch

from kernelscope.precision.formats import FORMATS

# Bits of the exponent and of the mantissa; how many of the largest codes are not numbers.
LAYOUTS = {"float16": (5, 10), "bfloat16": (8, 7), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}


def _numbers(
    exponent_bits: int, mantissa_bits: int, *, infinite: bool, most: float | None = None
) -> list[float]:
    """Every number of at least 0, in order, from the definition."""
    bias = 2 ** (exponent_bits - 1) - 1
    found = []
    for exponent in range(2**exponent_bits - infinite):
        for mantissa in range(2**mantissa_bits):
            fraction = mantissa / 2**mantissa_bits
            if exponent == 0:
                found.append(2.0 ** (1 - bias) * fraction)
            else:
                found.append(2.0 ** (exponent - bias) * (1 + fraction))
    return [number for number in found if most is None or number <= most]


def _nearest(value: float, numbers: list[float]) -> float | None:
    """Ties go to the even code; None: larger than half a step above the largest."""
    size = abs(value)
    at = bisect.bisect_left(numbers, size)
    if at == len(numbers):
        step = numbers[-1] - numbers[-2]
        halfway = numbers[-1] + step / 2
        last_is_even = (len(numbers) - 1) % 2 == 0
        if size > halfway or (size == halfway and not last_is_even):
            return None
        return math.copysign(numbers[-1], value)
    low = max(at - 1, 0)
    below, above = size - numbers[low], numbers[at] - size
    index = low if below < above or (below == above and low % 2 == 0) else at
    return math.copysign(numbers[index], value)


def _all_of(name: str) -> list[float]:
    if name == "float8_e4m3fn":
        return _numbers(4, 3, infinite=False, most=448.0)
    return _numbers(*LAYOUTS[name], infinite=True)


def _values() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(1500, generator=generator) * torch.randn(1500, generator=generator).mul(7).exp()
    edges = [
        0.0,
        -0.0,
        448.0,
        464.0,
        464.5,
        -480.0,
        57344.0,
        61440.0,
        65504.0,
        65519.0,
        65520.0,
        2**-9,
        2**-10,
    ]
    more = [2**-10 * 1.001, 2**-16, 2**-17, 6e-8, 2.9e-8, 1e30, -3.39e38, 3.4e38]
    return torch.cat([random, torch.tensor(edges + more)])


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_value_becomes_the_nearest_number_of_the_format(name: str) -> None:
    numbers, values = _all_of(name), _values()
    nearest = [_nearest(value, numbers) for value in values.tolist()]
    rounded = FORMATS[name].rounded(values).tolist()
    for value, expected, found in zip(values.tolist(), nearest, rounded, strict=True):
        if expected is not None:
            assert found == expected, value
        else:  # as the installed torch makes it: infinite, NaN, or the largest number
            assert not math.isfinite(found) or abs(found) == numbers[-1]
    lost = FORMATS[name].lost(values)
    least_normal = 2.0 ** (2 - 2 ** (LAYOUTS[name][0] - 1))
    assert lost.overflow == sum(expected is None for expected in nearest) > 0
    assert lost.underflow == sum(0 < abs(value) < least_normal for value in values.tolist())
    assert lost.flushed == sum(
        value != 0 and expected == 0 for value, expected in zip(values.tolist(), nearest, strict=True)
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_torch_casts_in_the_same_way(name: str) -> None:
    dtype, values = getattr(torch, name), _values()
    values = values[values.abs() <= torch.finfo(dtype).max]
    assert torch.equal(FORMATS[name].rounded(values), values.to(dtype).float())


@pytest.mark.parametrize(
    ("name", "numbers", "emax"),
    [
        ("mxfp8", _numbers(4, 3, infinite=False, most=448.0), 8),
        ("mxfp4", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], 2),
    ],
)
def test_blocks_of_32_share_a_power_of_two(name: str, numbers: list[float], emax: int) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(3, 70, generator=generator) * torch.randn(3, 70, generator=generator).mul(3).exp()
    values[0, :32] = 0
    rounded, lost = FORMATS[name].rounded(values), FORMATS[name].lost(values)
    overflow = flushed = underflow = 0
    least_normal = 2.0**-6 if name == "mxfp8" else 1.0
    for row in range(3):
        for first in range(0, 70, 32):
            block = values[row, first : first + 32].tolist()
            most = max(map(abs, block))
            scale = 2.0 ** (math.floor(math.log2(most)) - emax) if most else 1.0
            for i, value in enumerate(block):
                nearest = _nearest(value / scale, numbers)
                overflow += nearest is None
                held = math.copysign(numbers[-1], value) if nearest is None else nearest
                flushed += value != 0 and held == 0
                underflow += 0 < abs(value / scale) < least_normal
                assert rounded[row, first + i].item() == pytest.approx(held * scale, rel=1e-6)
    assert (lost.overflow, lost.flushed, lost.underflow) == (overflow, flushed, underflow)
    assert flushed


def test_a_block_with_a_nan_has_no_scale_and_is_not_counted() -> None:
    values = torch.ones(2, 32)
    values[0, 3] = torch.nan
    rounded = FORMATS["mxfp8"].rounded(values)
    assert rounded[0].isnan().all()
    assert (rounded[1] == 1).all()
    assert FORMATS["mxfp8"].lost(values).overflow == 0


def test_infinities_nan_empty_tensors_and_scalars() -> None:
    for each in FORMATS.values():
        assert each.rounded(torch.empty(0, 4)).shape == (0, 4)
        assert each.lost(torch.empty(0)).overflow == 0
        assert each.rounded(torch.tensor(1.0)).item() == 1.0
        odd = torch.tensor([torch.inf, -torch.inf, torch.nan])
        assert (each.lost(odd).overflow, each.lost(odd).flushed) == (0, 0)
        assert each.rounded(odd)[2].isnan()
