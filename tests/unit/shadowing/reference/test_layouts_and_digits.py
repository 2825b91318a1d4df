"""Padded results, the digits that libraries may use, and errors of long chains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kernelscope.shadowing.reference.layouts import aligned, with_aligned_bias
from kernelscope.shadowing.reference.small_errors.library_digits import library_rounding
from kernelscope.shadowing.regions.comparison import compare_layouts
from kernelscope.shadowing.regions.modes.wide_mode import Wide
from kernelscope.shadowing.regions.padding import is_padded, padded
from kernelscope.shadowing.regions.second_opinion import is_explained

aten, prims = torch.ops.aten, torch.ops.prims
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
TF32 = 2.0**-10


def _with(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(sizes, strides, dtype=dtype)


@pytest.mark.parametrize(
    ("sizes", "made", "eager"),
    [
        ((2, 12, 97), (1248, 104, 1), (1164, 97, 1)),
        ((8, 33), (64, 1), (33, 1)),
        ((2, 3, 33), (264, 1, 8), (99, 1, 3)),
        ((1, 12, 97), (97, 104, 1), (1164, 97, 1)),  # the stride of a dimension of one element says nothing
    ],
)
def test_padding_is_not_wrong(sizes: tuple[int, ...], made: tuple[int, ...], eager: tuple[int, ...]) -> None:
    one, other = (_with(sizes, strides, torch.bfloat16) for strides in (made, eager))
    assert is_padded(one, other)
    assert compare_layouts([one], [other], ["result 0"], pytest.fail) == []
    (found,) = padded("forward", [one], [other], ["result 0"])
    assert (found.strides, found.eager_strides) == (made, eager)
    start = f"Result 0 of forward is padded: its strides are {made}, and in eager {eager}. "
    assert str(found).startswith(start)
    assert "shape_padding" in str(found)


@pytest.mark.parametrize(
    ("sizes", "made", "eager"),
    [
        ((12, 97), (1, 12), (97, 1)),  # another order
        ((12, 96), (1, 16), (96, 1)),  # another order, padded
        ((12, 97), (0, 1), (97, 1)),  # expanded
        ((12, 97), (8, 1), (97, 1)),  # rows overlap
        ((12, 97), (97, 1), (104, 1)),  # eager has the gaps
        ((12, 97), (112, 1), (104, 1)),  # both have
        ((12, 97), (208, 2), (97, 1)),  # gaps inside of rows
        ((12, 97), (99, 1), (97, 1)),  # not aligned to anything: part of something else
        ((2, 12, 97), (1164, 104, 1), (1164, 97, 1)),  # overlaps
    ],
)
def test_other_strides_are_wrong(
    sizes: tuple[int, ...], made: tuple[int, ...], eager: tuple[int, ...]
) -> None:
    one, other = (_with(sizes, strides, torch.bfloat16) for strides in (made, eager))
    assert not is_padded(one, other)
    (found,) = compare_layouts([one], [other], ["result 0"], pytest.fail)
    assert found.reason == f"its strides are {made}, and in eager {eager}"
    assert list(padded("forward", [one], [other], ["result 0"])) == []


def test_padding_hides_nothing_else() -> None:
    """Such as a result that lost its gradient."""
    one, other = _with((8, 33), (64, 1), torch.float32), _with((8, 33), (33, 1), torch.float32)
    (found,) = compare_layouts([one], [other.requires_grad_()], ["result 0"], pytest.fail)
    assert "does not" in found.reason


@pytest.fixture
def backends() -> Iterator[None]:
    backends = torch.backends
    settings = [backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul, backends.mkldnn.matmul]
    before = [each.fp32_precision for each in settings]
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)
    for each, value in zip(settings, before, strict=True):
        each.fp32_precision = value


def test_digits_of_libraries(backends: None) -> None:
    f32 = torch.float32
    convolutions = (aten.convolution.default, aten.convolution_backward.default, aten.conv2d.default)
    assert {library_rounding(each, f32, CUDA) for each in convolutions} == {TF32}  # cuDNN's default
    assert library_rounding(aten._cudnn_rnn.default, f32, CUDA) == TF32
    products = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.linear.default)
    assert {library_rounding(each, f32, CUDA) for each in products} == {0.0}
    exact = (prims.convert_element_type.default, aten.lgamma.default, aten.add.Tensor, aten.sum.default)
    torch.set_float32_matmul_precision("medium")
    assert {library_rounding(each, f32, CUDA) for each in products} == {TF32}
    assert library_rounding(aten.mm.default, torch.complex64, CUDA) == TF32
    assert library_rounding(aten.mm.default, f32, CPU) == 2.0**-7  # oneDNN may use bfloat16
    assert {library_rounding(each, f32, CUDA) for each in exact} == {0.0}
    assert library_rounding(aten.mm.default, torch.float64, CUDA) == 0.0
    torch.set_float32_matmul_precision("highest")
    assert library_rounding(aten.mm.default, f32, CUDA) == 0.0
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    assert library_rounding(aten.convolution.default, f32, CUDA) == 0.0
    assert library_rounding(aten.convolution.default, f32, CPU) == 0.0


def test_small_errors_go_on_after_an_operator_that_writes() -> None:
    """In float64 it is still known which dtype the result of a batch norm has in truth."""
    x, mean, variance = (torch.randn(4, 3, 5).double(), torch.zeros(3).double(), torch.ones(3).double())
    mode = Wide(torch.Generator().manual_seed(0))
    for each in (x, mean, variance):
        mode.learn(each, torch.float32)
    with mode:
        made = aten._native_batch_norm_legit.default(x, None, None, mean, variance, True, 0.1, 1e-5)[0]
        sums = aten.add_.Tensor(mean, 1)
    assert made.dtype == torch.float64
    assert mode.dtype_of(made) == torch.float32
    assert mode.dtype_of(sums) == torch.float32


class _Chain:
    """A result in which roundings are amplified to errors that are larger than most of its elements."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self.exact = self._noise(0.1)
        self._runs = [self.exact + self._noise(1.0) for _ in range(8)]
        self.eager = self.exact + self._noise(1.0)

    def _noise(self, size: float) -> torch.Tensor:
        return size * torch.randn(100_000, dtype=torch.float64, generator=self._generator)

    def is_explained(self, error: torch.Tensor) -> bool:
        return is_explained(self.exact + error, self.exact, self._runs.__getitem__, self.eager)


def test_errors_of_a_chain_that_small_errors_have_too() -> None:
    chain = _Chain()
    assert chain.is_explained(chain._noise(1.0))
    assert chain.is_explained(chain._noise(2.2))


@pytest.mark.parametrize("fault", ["all larger", "one element", "a percent of them", "too large", "one way"])
def test_errors_of_a_chain_that_small_errors_do_not_have(fault: str) -> None:
    chain = _Chain()
    error = chain._noise(1.0)
    if fault == "all larger":
        error *= 3
    elif fault == "one element":
        error[17] = 40
    elif fault == "a percent of them":
        error[::100] = 16
    elif fault == "too large":
        error += 0.5 * chain.exact.sign() * 10
    else:
        error += 0.5 * chain.exact
    assert not chain.is_explained(error)


def test_the_bias_of_attention_is_aligned() -> None:
    mask = torch.randn(2, 1, 7, 7).expand(2, 4, 7, 7)
    found = aligned(mask)
    assert torch.equal(found, mask)
    assert found.stride() == (112, 0, 16, 1)
    assert aligned(found) is found
    assert aligned(torch.randn(3, 5).t()).stride() == (16, 1)
    attention = torch.ops.aten._scaled_dot_product_efficient_attention.default
    query = torch.randn(2, 4, 7, 8)
    args, _ = with_aligned_bias(attention, (query, query, query, mask, False), {})
    assert args[3].stride() == (112, 0, 16, 1)
    assert args[0] is query
    assert with_aligned_bias(aten.add.Tensor, (mask, mask), {}) == ((mask, mask), {})
