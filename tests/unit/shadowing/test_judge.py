"""The decision, on tensors whose error is known."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.shadowing.checks.judge import Verdict, judge
from kernelscope.shadowing.checks.measure import LIBRARY, Sums, is_equal, sums, sums_by_torch

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def rounded(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return wide.to(dtype)


def decide(made: torch.Tensor, wide: torch.Tensor, eager: torch.Tensor | None = None) -> Verdict:
    generator = torch.Generator().manual_seed(0)
    eps = torch.finfo(made.dtype).eps

    def jittered() -> torch.Tensor:
        return wide * (1 + eps * (torch.rand(wide.shape, generator=generator, dtype=torch.float64) - 0.5))

    return judge(made, eager if eager is not None else wide.to(made.dtype), lambda: wide, jittered, eps)


@pytest.fixture
def wide() -> torch.Tensor:
    return torch.randn(50, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_equal_passes_without_float64(dtype: torch.dtype) -> None:
    x = torch.randn(9).to(dtype)
    x[3] = math.nan

    def never() -> torch.Tensor:
        raise AssertionError("not needed")

    verdict = judge(x.clone(), x, never, never, 1e-7)
    assert verdict.is_bitwise
    assert not verdict.is_wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ulps", [1, 2])
def test_a_few_roundings_pass(dtype: torch.dtype, ulps: int, wide: torch.Tensor) -> None:
    noise = torch.rand(wide.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    made = (wide * (1 + ulps * torch.finfo(dtype).eps * noise)).to(dtype)
    assert not decide(made, wide).is_wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("change", ["element", "sign", "scale", "shift", "nan", "inf"])
def test_a_mistake_is_found(dtype: torch.dtype, change: str, wide: torch.Tensor) -> None:
    made = wide.clone()
    if change == "element":
        made[7, 3] += 0.5
    elif change == "sign":
        made[7, 3] *= -1
    elif change == "scale":
        made *= 1.01
    elif change == "shift":
        made = made.roll(1, 1)
    else:
        made[7, 3] = float(change)
    verdict = decide(made.to(dtype), wide)
    assert verdict.is_wrong
    assert verdict.reason
    assert verdict.where is not None
    if change in ("element", "sign", "nan", "inf"):
        assert verdict.where == (7, 3)


def test_one_percent_in_bfloat16_is_found_by_its_direction(wide: torch.Tensor) -> None:
    """Each element is within a few roundings; that all of them go the same way gives it away."""
    verdict = decide((wide * 1.012).to(torch.bfloat16), wide)
    assert verdict.is_wrong
    assert float(verdict.numbers["max_error_over_eager"]) < 6


def test_where_eager_itself_is_poor_a_kernel_may_be_too(wide: torch.Tensor) -> None:
    noise = torch.rand(wide.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    eager = (wide + 1e-3 * noise).float()
    assert not decide((wide - 1e-3 * noise.roll(1)).float(), wide, eager).is_wrong
    assert decide((wide + 0.5 * noise).float(), wide, eager).is_wrong


def test_integers_differ_only_for_a_reason() -> None:
    wide = torch.arange(10.0, dtype=torch.float64)
    eager = wide.to(torch.int64)
    made = eager.clone()
    made[4] = 5
    assert judge(made, eager, lambda: wide.to(torch.int64), lambda: wide.to(torch.int64), 1e-7).is_wrong

    def near_a_tie() -> torch.Tensor:
        moved = eager.clone()
        moved[4] = 5
        return moved

    assert not judge(made, eager, lambda: eager, near_a_tie, 1e-7).is_wrong


def test_infinities_must_be_where_both_references_have_them(wide: torch.Tensor) -> None:
    wide[0, 0], wide[0, 1] = math.inf, math.nan
    assert not decide(wide.float() * 1.0, wide, wide.float().neg().neg()).is_wrong
    made = wide.float()
    made[0, 0] = 1
    assert decide(made, wide).is_wrong
    made = wide.float()
    made[0, 1] = 1
    assert decide(made, wide).is_wrong


def test_eager_alone_is_not_believed(wide: torch.Tensor) -> None:
    """Where eager says NaN and float64 does not: gelu(inf) through oneDNN, which eager uses on x86_64."""
    wide[0, 0], wide[0, 1] = math.inf, 0.0
    eager = wide.float()
    eager[0, :2] = math.nan
    assert not decide(wide.float(), wide, eager).is_wrong
    assert not decide(eager, wide, eager).is_wrong
    made = wide.float()
    made[5, 5] += 1
    verdict = decide(made, wide, eager)
    assert verdict.is_wrong
    assert verdict.where == (5, 5)


def test_complex_numbers(wide: torch.Tensor) -> None:
    whole = torch.complex(wide, wide.flip(0))
    made = whole.to(torch.complex64)
    made[3, 3] += 1j
    verdict = judge(made, whole.to(torch.complex64), lambda: whole, lambda: whole, 1e-7)
    assert verdict.is_wrong
    assert verdict.where == (3, 3, 1)


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


def test_zero_or_nearly_zero_is_not_a_mistake() -> None:
    """log(1 - p), of a p that is nearly 1: one result is infinite, and the other is not."""
    p = torch.tensor([0.5, 1 - 4e-8], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    eps = torch.finfo(torch.float32).eps

    def jittered() -> torch.Tensor:
        noise = eps * (torch.rand(p.shape, generator=generator, dtype=torch.float64) - 0.5)
        return torch.log(1 - p * (1 + noise))

    def decided(made: list[float]) -> Verdict:
        eager = torch.log(1 - torch.tensor([0.5, 1 - 2**-24]))
        return judge(torch.tensor(made), eager, lambda: torch.log(1 - p), jittered, eps)

    half = math.log(0.5)
    assert not decided([half, -math.inf]).is_wrong
    wrong = decided([-math.inf, -math.inf])
    assert wrong.is_wrong
    assert wrong.where == (0,)


def test_conjugates_and_signs_that_torch_keeps_to_itself() -> None:
    z = torch.randn(6, dtype=torch.complex64)
    assert decide(z.conj(), z.conj().resolve_conj().to(torch.complex128)).is_bitwise
    assert decide(z.conj().imag, -z.imag.double()).is_bitwise
    assert decide(z.conj(), z.to(torch.complex128)).is_wrong
