"""The decision, on tensors whose error is known."""

from __future__ import annotations

import math

import pytest
import torch
from tests.unit.shadowing.checks.decisions import DTYPES, decide

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.verdict_record import Verdict


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


KINDS = [0.75, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made", KINDS)
@pytest.mark.parametrize("both", KINDS)
def test_nan_is_not_inf_and_inf_is_not_minus_inf(dtype: torch.dtype, made: float, both: float) -> None:
    """Where eager and float64 agree, a kernel has to."""
    wide = torch.full((5,), 0.5, dtype=torch.float64)
    wide[3] = both
    c = wide.clone().to(dtype)
    c[3] = made
    verdict = decide(c, wide)
    assert verdict.is_wrong == (repr(made) != repr(both))
    if verdict.is_wrong:
        assert verdict.where == (3,)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("made", [*KINDS, 0.5])
@pytest.mark.parametrize("eager", KINDS[1:])
@pytest.mark.parametrize("exact", KINDS)
def test_where_eager_and_float64_disagree_a_kernel_is_like_one_of_them(
    made: float, eager: float, exact: float, adds: bool
) -> None:
    """An overflow on the way: a finite value has to be that of float64, but in a sum its order decides."""
    wide = torch.full((5,), 0.5, dtype=torch.float64)
    e, c = wide.float(), wide.float()
    wide[3], e[3], c[3] = exact, eager, made
    verdict = judge(c, e, lambda: wide, lambda: wide * (1 + 1e-8), 1e-7, adds=adds)
    is_like_one = repr(made) in (repr(eager), repr(exact))
    is_open = adds and repr(eager) != repr(exact)
    assert verdict.is_wrong == (not is_like_one and not is_open)


def test_an_overflow_near_the_largest_number_is_rounding() -> None:
    wide = torch.tensor([1.0, 65519.0, 65530.0, 3e5], dtype=torch.float64)
    for second in (65504.0, math.inf):
        made = torch.tensor([1.0, second, second, math.inf]).half()
        assert not decide(made, wide).is_wrong
    assert decide(torch.tensor([1.0, 65504.0, math.inf, -math.inf]).half(), wide).is_wrong
    assert decide(torch.tensor([-math.inf, 65504.0, math.inf, math.inf]).half(), wide).is_wrong


def test_next_to_a_pole_any_kind_is_rounding() -> None:
    """log(a - b): 0 and a negative number are one rounding apart."""
    difference = torch.tensor([0.5, -1e-9], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)

    def jittered() -> torch.Tensor:
        noise = 1e-7 * (torch.rand(2, generator=generator, dtype=torch.float64) - 0.5)
        return (difference + noise).log()

    wide = difference.log()
    for value in (-math.inf, math.nan, -16.0):
        made = torch.tensor([math.log(0.5), value])
        assert not judge(made, wide.float(), lambda: wide, jittered, 1e-7).is_wrong
    made = torch.tensor([-math.inf, math.nan])
    assert judge(made, wide.float(), lambda: wide, jittered, 1e-7).is_wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_the_sign_of_a_zero_counts_where_it_is_defined(dtype: torch.dtype) -> None:
    wide = torch.tensor([1.0, -0.0, 0.0], dtype=torch.float64)
    if dtype.is_complex:
        wide = torch.complex(wide, torch.ones(3, dtype=torch.float64))
    eager, made = wide.to(dtype), (wide + 0).to(dtype)
    assert not judge(made, eager, lambda: wide, lambda: wide, 1e-7).is_wrong
    verdict = judge(made, eager, lambda: wide, lambda: wide, 1e-7, signed_zeros=True)
    assert verdict.is_wrong
    assert verdict.where is not None
    assert verdict.where[0] == 1
    moved = wide + 1e-9  # the sum of two that cancel
    assert not judge(made, eager, lambda: wide, lambda: moved, 1e-7, signed_zeros=True).is_wrong
    other = -wide  # eager and float64 do not agree
    assert not judge(made[1:], eager[1:], lambda: other[1:], lambda: other[1:], 1e-7).is_wrong


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_integers_are_compared_as_integers(dtype: torch.dtype) -> None:
    """Not through float64, which has no 2**53 + 1."""
    eager = torch.tensor([0, 1, 1]).to(dtype)
    if dtype is torch.int64:
        eager[0] = 2**53
    made = eager.clone()
    made[0] = not eager[0] if dtype is torch.bool else eager[0] + 1
    verdict = judge(made, eager, lambda: eager, lambda: eager, 1e-7)
    assert verdict.is_wrong
    assert (verdict.where, verdict.numbers["wrong"]) == ((0,), 1)
    assert verdict.numbers["compiled"] == made[0].item()


def test_integers_that_no_operator_wrote_are_known_without_more_runs() -> None:
    """Attention without dropout returns a seed that it never writes."""
    eager, made = torch.arange(4), torch.tensor([7, 1, 2, 3])

    def jittered() -> torch.Tensor:
        raise AssertionError("sixteen of these would be run in vain")

    left = torch.tensor([True, False, False, False])
    verdict = judge(made, eager, lambda: eager, jittered, 1e-7, unwritten=lambda: left)
    assert verdict.is_bitwise
    assert not verdict.is_wrong
    made[3] = 9
    verdict = judge(made, eager, lambda: eager, lambda: eager, 1e-7, unwritten=lambda: left)
    assert (verdict.is_wrong, verdict.where, verdict.numbers["wrong"]) == (True, (3,), 1)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32, torch.bool, torch.complex64], ids=str)
def test_what_was_expected_to_differ_is_judged_alike(dtype: torch.dtype) -> None:
    wide = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 9
    wide[:3] = torch.tensor([math.inf, math.nan, 0.0])
    exact = wide[2:] if not (dtype.is_floating_point or dtype.is_complex) else wide
    eager = exact.to(dtype)
    reference = eager if eager.dtype in (torch.int32, torch.bool) else exact
    if dtype.is_complex:
        reference = exact.to(torch.complex128)
    wrong = eager.clone()
    wrong[-1] = not wrong[-1] if dtype is torch.bool else wrong[-1] + 5
    for made in (eager, wrong):
        one, other = (
            judge(made, eager, lambda: reference, lambda: reference, 1e-7, signed_zeros=True, differs=differs)
            for differs in (False, True)
        )
        assert (one.is_wrong, one.is_bitwise, one.where) == (other.is_wrong, other.is_bitwise, other.where)
        assert one.is_wrong == (made is wrong)


def test_infinite_complex_numbers_have_many_forms() -> None:
    """An infinite complex number may have any other part; a finite one may not."""
    wide = torch.tensor([complex(math.inf, math.nan), 1 + 1j], dtype=torch.complex128)
    eager = wide.to(torch.complex64)
    made = torch.tensor([complex(math.nan, -math.inf), 1 + 1j])
    assert not judge(made, eager, lambda: wide, lambda: wide, 1e-7).is_wrong
    made = torch.tensor([complex(math.inf, math.nan), complex(1, math.inf)])
    assert judge(made, eager, lambda: wide, lambda: wide, 1e-7).is_wrong


def test_complex_numbers(wide: torch.Tensor) -> None:
    whole = torch.complex(wide, wide.flip(0))
    made = whole.to(torch.complex64)
    made[3, 3] += 1j
    verdict = judge(made, whole.to(torch.complex64), lambda: whole, lambda: whole, 1e-7)
    assert verdict.is_wrong
    assert verdict.where == (3, 3, 1)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_exact_rounding_beside_ties_is_not_a_bias(dtype: torch.dtype) -> None:
    """A sum of two rounded numbers is often a tie; a factor just below 1 moves every tie to the same side."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(8192, generator=generator).add(1).to(dtype) for _ in range(2))
    wide = x.double() * (1 - 5e-6) + y.double()
    made = (x.float() * (1 - 5e-6) + y.float()).to(dtype)
    eager = x + y
    assert not decide(made, wide, eager).is_wrong
    off = (made.double() * (1 + 4 * torch.finfo(dtype).eps)).to(dtype)
    assert decide(off, wide, eager).is_wrong


def test_what_is_all_rounding_has_no_direction() -> None:
    """The gradient of a key's bias is zero: what is left of it are roundings, whose direction is chance."""
    torch.manual_seed(0)
    wide = torch.randn(32, dtype=torch.float64) * 1e-21
    noise = torch.randn(32, dtype=torch.float64)
    eager = (noise * 4e-13).float()
    along = (wide.sign() * 6e-13).float()  # as far off as others, all in one direction

    def jittered() -> torch.Tensor:
        return wide + torch.randn(32, dtype=torch.float64) * 4e-13

    verdict = judge(along, eager, lambda: wide, jittered, 1e-3)
    assert verdict.numbers["max_error_over_eager"] < 3
    assert not verdict.is_wrong, verdict.reason
    far = along * 100
    assert judge(far, eager, lambda: wide, jittered, 1e-3).is_wrong
