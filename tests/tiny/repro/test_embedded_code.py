"""The code that a repro script carries along: its arguments, and how results are compared."""

from __future__ import annotations

import torch

from kernelscope.repro.embedded.rounding import Reference, allowance, difference
from kernelscope.repro.embedded.tensors import arguments


def test_arguments_that_share_memory() -> None:
    spec = {"dtype": "float32", "shape": (2,), "stride": (1,), "memory": "a"}
    given = {
        "a": spec | {"role": "in", "values": [1.0, 2.0]},
        "b": spec | {"role": "out", "offset": 1},
        "c": {"dtype": "float32", "shape": (2, 2), "stride": (1, 2), "role": "in", "values": [1, 2, 3, 4]},
    }
    made = arguments(given, {})
    made["b"][0] = 7
    assert made["a"].tolist() == [1, 7]
    assert made["c"].tolist() == [[1, 2], [3, 4]]
    assert made["c"].stride() == (1, 2)
    assert torch.isnan(made["b"][1]), "memory that holds nothing is not zero by chance"


def test_arguments_of_any_layout_and_dtype() -> None:
    def made(dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], **more: object) -> torch.Tensor:
        about = {"role": "in", "dtype": dtype, "shape": shape, "stride": stride} | more
        return arguments({"x": about}, {})["x"]

    expanded = made("float32", (3, 2), (0, 1), values=[1.0, 2.0] * 3)
    assert expanded.tolist() == [[1, 2]] * 3
    assert expanded.stride() == (0, 1)
    assert made("float32", (), (), values=[2.5]).item() == 2.5
    assert made("float32", (0, 3), (3, 1)).shape == (0, 3)
    assert made("float8_e4m3fn", (2,), (1,), values=[1.0, -2.0]).float().tolist() == [1, -2]
    drawn = {"seed": 1, "min": 0.5, "max": 2.0, "mean": 1.0, "std": 0.3}
    turned = made("complex64", (50,), (1,), **drawn).abs()
    assert 0.49 < float(turned.min()) <= float(turned.max()) < 2.01
    odd = made("float32", (50,), (1,), **drawn, special={"nan": 3, "-inf": 2, "0": 7})
    assert [int(n) for n in (odd.isnan().sum(), odd.isneginf().sum(), (odd == 0).sum())] == [3, 2, 7]
    largest = made("int64", (4,), (1,), **drawn | {"min": -float(1 << 63), "max": float(1 << 63)})
    assert largest.dtype == torch.int64


def test_complex_and_8_bit_results_are_compared_by_rounding_too() -> None:
    exact = torch.randn(100, dtype=torch.complex128)
    right = exact.to(torch.complex64)
    allowed = allowance(right, exact, [], 1.0)
    assert difference(right * (1 + 1e-7), right, exact, allowed) == ""
    wrong = right.clone()
    wrong[3] += 1e-3j
    assert "1 of 100 elements differ; worst at [3]" in difference(wrong, right, exact, allowed)
    narrow = torch.randn(100, dtype=torch.float64)
    eighth = narrow.to(torch.float8_e4m3fn)
    allowed = allowance(eighth, narrow, [], 1.0)
    assert difference(eighth, eighth, narrow, allowed) == ""
    assert "elements differ" in difference((narrow + 1).to(eighth.dtype), eighth, narrow, allowed)
    ties = torch.tensor([2, 3, 4])
    unsure = allowance(ties, torch.tensor([2, 3, 5]), [ties], 1.0)
    assert difference(torch.tensor([2, 3, 5]), ties, ties, unsure) == "", "a tie that rounding decides"
    assert "1 of 3 elements differ" in difference(torch.tensor([2, 4, 4]), ties, ties, unsure)
    assert "should have [3]" in difference(torch.ones(2), torch.ones(3), None, None)


def test_rounding_is_no_difference_and_a_wrong_digit_is() -> None:
    exact = torch.rand(100, dtype=torch.float64) + 1
    right = exact.float()
    allowed = allowance(right, exact, [], 1.0)
    assert difference(right + 1e-7, right, exact, allowed) == ""
    wrong = right.clone()
    wrong[3] *= 1.0001
    assert "1 of 100 elements differ; worst at [3]" in difference(wrong, right, exact, allowed)
    wrong[3] = torch.nan
    assert "nan, not" in difference(wrong, right, exact, allowed)
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3]), None, None)
    assert "torch.float64 and should be torch.float32" in difference(exact, right, exact, allowed)


def test_rounding_in_between_is_no_difference_either() -> None:
    """What cancels is rounded in another order, and what is exact is not shaken."""

    def eager(x: torch.Tensor, count: torch.Tensor) -> dict[str, torch.Tensor]:
        threefold = x * 3
        return {
            "nothing": x.sum() - x.flip(0).sum(),
            "far": (x + 1e4).sub_(1e4),
            "near": threefold,
            "top": threefold.amax() == threefold,
            "all": count.sum() == 300,
            "odd": (1 - x.sigmoid().neg().add(1)).log(),
        }

    x = torch.randn(300, generator=torch.Generator().manual_seed(0))
    x[7] = -17.5
    given = {"x": x, "count": torch.ones(300)}
    known = Reference(eager, lambda: {name: value.clone() for name, value in given.items()})

    def said(name: str, made: torch.Tensor) -> str:
        return difference(made, known.right[name], known.exact[name], known.allowed(name))

    assert not said("nothing", torch.tensor(2e-5))
    assert said("nothing", torch.tensor(1e-2))
    assert not said("far", known.right["far"] + 1e-3)
    assert said("far", known.right["far"] + 1e-1)
    assert said("near", known.right["near"] * 1.0001)
    for name in ("top", "all"):
        assert not known.allowed(name).any(), "whatever is rounded, this is decided"
        assert said(name, ~known.right[name])
    one_less = known.right["odd"].clone()
    one_less[7] = -16.6
    assert not said("odd", one_less), "1 - p, of a p that is nearly 1"
    one_less[8] = torch.nan
    assert "1 of 300 elements differ; worst at [8]: nan" in said("odd", one_less)
