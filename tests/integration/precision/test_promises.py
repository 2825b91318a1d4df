"""Precision maps of compiled functions: what they promise is tried again, by other means."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.json_schemas import wrong_in
from torch.nn import functional as F

import kernelscope
from kernelscope import PrecisionMap, precision_map

EXAMPLE = Path(__file__).parents[3] / "examples" / "transformer.py"


def _relative(found: torch.Tensor, reference: torch.Tensor) -> float:
    return float((found.double() - reference.double()).norm() / reference.double().norm())


def _rounding(dtype: torch.dtype, turns: set[int]) -> Callable[[Any, Any], dict[str, torch.Tensor]]:
    """For `replace`: rounds what a kernel writes at these of its launches."""
    launches = Counter[str]()

    def rounded(arguments: Any, written: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        turn, launches[""] = launches[""], launches[""] + 1
        floats = {name: t for name, t in written.items() if t.is_floating_point() and turn in turns}
        return {name: t.to(dtype).to(t.dtype) for name, t in floats.items()}

    return rounded


def _with_rounded(found: PrecisionMap, labels: list[str], dtype: torch.dtype, run: Callable[[], Any]) -> Any:
    """Run once with these outputs rounded, through the public `replace` alone."""
    turns: dict[str, set[int]] = {}
    seen = Counter[str]()
    for kernel in found.kernels:  # in the order of their launches, one each
        assert kernel.launches == 1
        if kernel.label in labels:
            turns.setdefault(kernel.kernel_name, set()).add(seen[kernel.kernel_name])
        seen[kernel.kernel_name] += 1
    with ExitStack() as stack:
        for name, which in turns.items():
            stack.enter_context(kernelscope.replace(name, _rounding(dtype, which)))
        return run()


def test_each_promise_about_a_transformer_holds_when_it_is_tried_again() -> None:
    torch.manual_seed(0)
    model = torch.compile(runpy.run_path(str(EXAMPLE))["Transformer"]())
    words = torch.randint(0, 50, (2, 8))
    with torch.no_grad():
        reference = model(words)
        for format, tolerance in (("bfloat16", 2e-3), ("float8_e4m3fn", 1e-2)):
            found = precision_map(model, words, tolerance=tolerance, output="result 0", formats=[format])
            assert found.status == 0, found
            assert wrong_in("precision-of-function", found.to_dict()) == []
            assert found.outputs == ["result 0"]
            assert all(kernel.error is not None for kernel in found.kernels), str(found)
            (promise,) = found.promises
            assert promise.chosen
            assert promise.refused
            dtype = getattr(torch, format)
            again = _with_rounded(found, promise.chosen, dtype, lambda: model(words))
            assert _relative(again, reference) == pytest.approx(promise.error, rel=1e-6)
            assert promise.error <= tolerance
            everything = [*promise.chosen, *promise.refused]
            worse = _with_rounded(found, everything, dtype, lambda: model(words))
            assert _relative(worse, reference) == pytest.approx(promise.error_of_all, rel=1e-6)
            assert promise.error_of_all > tolerance
            assert f"can be {format}; verified in a run with these rounded" in str(found)
            assert "should stay as they are: " in str(found)


class _Decoder(torch.nn.Module):
    """An RMS norm, attention and a gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.RMSNorm(32), torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.up, self.down = torch.nn.Linear(32, 128), torch.nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class _Images(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = torch.nn.GroupNorm(2, 8), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.norm(self.second(F.relu(self.first(x))))).mean((2, 3)))


class _Waves(torch.nn.Module):
    """Large arguments of a sine, sums that cancel, and a running sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(24, 32))
        self.second = torch.nn.Parameter(torch.randn(32, 20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x @ self.first * 300).sin().softmax(-1) @ self.second
        return (y - y.mean(-1, keepdim=True)).relu().cumsum(-1) @ self.second.T


_PROGRAMS = {
    "decoder": (_Decoder, (2, 12, 32), 3e-3),
    "images": (_Images, (4, 3, 10, 10), 3e-3),
    "waves": (_Waves, (16, 24), 3e-3),
}


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.slow) for each in _PROGRAMS])
def test_promises_about_other_programs_hold_when_they_are_tried_again(name: str) -> None:
    torch.manual_seed(0)
    kind, sizes, tolerance = _PROGRAMS[name]
    model, x = torch.compile(kind()), torch.randn(sizes)
    with torch.no_grad():
        reference = model(x)
        for format, allowed in (("bfloat16", tolerance), ("float8_e4m3fn", 20 * tolerance)):
            found = precision_map(model, x, tolerance=allowed, output="result 0", formats=[format])
            assert found.status == 0, found
            for promise in found.promises:
                dtype = getattr(torch, format)
                again = _with_rounded(found, promise.chosen, dtype, lambda: model(x))
                assert _relative(again, reference) == pytest.approx(promise.error, rel=1e-5)
                assert promise.error <= allowed
                for label in promise.refused:  # one more is too many
                    worse = _with_rounded(found, [*promise.chosen, label], dtype, lambda: model(x))
                    assert _relative(worse, reference) > allowed
            assert found.promises or format != "bfloat16", found


def test_a_kernel_that_the_result_depends_on_too_much_is_refused() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(32, 32), torch.randn(16, 32)

    @torch.compile
    def waves(x: torch.Tensor) -> torch.Tensor:
        return (x.mm(weight) * 1000).sin()

    found = precision_map(waves, x, formats=["bfloat16", "mxfp8"])
    wide, blocks = found.what_ifs
    assert ["mm" in label for label in wide.refused] == [True]
    assert ["sin" in label for label in wide.chosen] == [True]
    assert wide.error_of_all > 0.5
    effects = {each.label: each.effect for each in wide.candidates}
    assert effects[wide.refused[0]] > 100 * effects[wide.chosen[0]]
    assert len(blocks.refused) == 2  # 3 bits of a mantissa round by more than 0.01


def test_gradients_are_outputs_and_backward_kernels_are_measured() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    x = torch.randn(4, 8, requires_grad=True)
    found = precision_map(model, x, formats=["bfloat16"])
    assert {"result 0", "gradient of argument 0", "gradient of 0.weight"} <= {*found.outputs}
    assert {kernel.phase for kernel in found.kernels} == {"forward", "backward"}
    assert found.promises
    assert x.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_program_in_bfloat16_is_tried_in_float32() -> None:
    torch.manual_seed(0)

    class Steep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(32, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.mm(self.weight) * 100).sin().mm(self.weight)

    model, x = Steep().bfloat16(), torch.randn(16, 32).bfloat16()
    found = precision_map(model, x, output="result 0", tolerance=0.02)
    assert found.kernels[0].dtypes == ("bfloat16",)
    assert model.weight.dtype == torch.bfloat16
    tried = found.what_ifs[-1]
    assert (tried.program, tried.format, tried.is_kept) == ("in float32", "bfloat16", True)
    assert ["mm" in label for label in tried.refused] == [True]
    assert len(tried.candidates) == 3
    assert f"should be float32: {tried.refused[0]}" in str(found)


def test_values_that_overflow_float16() -> None:
    x = torch.arange(1.0, 65.0)
    found = precision_map(torch.compile(lambda x: x * 2000), x, formats=["float16", "bfloat16"])
    (kernel,) = found.kernels
    overflow = (x * 2000).half().isinf().double().mean().item()
    assert kernel.range.shares("float16")["overflow"] == overflow > 0
    assert kernel.range.shares("bfloat16")["overflow"] == 0
    assert kernel.verdict == "fine"  # in its own dtype, float32
    assert [each.chosen for each in found.what_ifs] == [[], [kernel.label]]
    inside = precision_map(torch.compile(lambda x: x.half() * 2000), x, formats=[])
    assert inside.kernels[0].verdict == "overflows"
    assert inside.kernels[0].range.infinite == round(overflow * 64)
    assert inside.status == 1
    assert "values do not fit the dtype: " in str(inside)


def test_cancellation_is_named() -> None:
    x = torch.rand(256) + 0.5
    found = precision_map(torch.compile(lambda x: (x + 1e5) - 1e5), x, formats=[])
    (kernel,) = found.kernels
    assert kernel.verdict == "amplifies"
    assert kernel.error is not None
    wide = (x.double() + 1e5) - 1e5
    exact = float((((x + 1e5) - 1e5).double() - wide).norm() / wide.norm())
    assert kernel.error.relative == pytest.approx(exact, rel=1e-6)
    assert kernel.error.median_ulp > 1000
    assert kernel.explained is not None
    assert 0.1 < kernel.explained / exact < 10
    assert "rounding is amplified, as by cancellation" in str(found)
    assert found.status == 0
