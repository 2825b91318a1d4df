"""Memory that a wrapper reuses and reinterprets: no alarm, and a fault in it is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integration.faults.wrong_element import wrong_element
from tests.programs.judged_views import assert_clean, assert_judged_right
from torch import nn

import kernelscope

SLOW_EXAMPLES, EXAMPLES = 1000, 10
_FIXED = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "phases": (Phase.generate,),
    "suppress_health_check": list(HealthCheck),
}


@settings(max_examples=EXAMPLES, **_FIXED)
@given(st.integers(0, 1 << 32))
def test_random_programs(seed: int) -> None:
    assert_judged_right(seed)


@pytest.mark.slow
@settings(max_examples=SLOW_EXAMPLES, **_FIXED)
@given(st.integers(0, 1 << 32))
def test_a_thousand_random_programs(seed: int) -> None:
    assert_judged_right(seed)


def test_results_that_come_to_share_memory_are_named() -> None:
    """A bug of Inductor: what is joined lies in its slice of the whole, and both are returned."""

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        part = x.sin() * 2
        return torch.stack([part.sin(), part])[1:2], part[:, 1:3]

    first, second = torch.compile(parts)(torch.randn(4, 6))
    is_there = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    result = kernelscope.check_correctness(parts, (torch.randn(4, 6),))
    assert ["shares memory with result 1" in c.reason for c in result] == [True] * is_there, str(result)


def test_only_the_order_of_a_views_strides_is_kept() -> None:
    def row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.t().contiguous().as_strided([4, 4], [1, 4]) * y + 1)[3:4]

    result = kernelscope.check_correctness(row, (torch.randn(4, 4), torch.randn(4, 4)))
    assert_clean(result)
    assert any("order of its strides" in note for note in result.notes), str(result)


def test_a_value_that_is_read_before_it_is_written_to_in_place() -> None:
    """Two sums become one; one kernel computes what reads it, and then writes to it."""

    def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = x + 1, x + 1
        one[:, 1::2] = 3
        other.diagonal(0, 1, 0).add_(1)
        return one @ w, other.t() @ other

    args = torch.randn(2, 6).requires_grad_(), torch.randn(6, 4)
    assert_clean(kernelscope.check_correctness(both, args))


def test_a_result_that_views_an_input_has_a_gradient_of_its_own() -> None:
    """It goes past the compiled code."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.view(4, 2, 3).permute(0, 2, 1), (x * 2).sin()

    x = torch.randn(8, 3, requires_grad=True)
    with kernelscope.shadow() as result:
        view, computed = torch.compile(both)(x)
        (view.square().mean() + computed.square().mean()).backward()
    assert_clean(result)


def test_what_a_slice_leaves_out_need_not_be_known() -> None:
    """Inductor drops the first product, and its inputs are gone: the second kernel does not depend on it."""

    def second_half(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([x @ a, x @ b], -1).split([4, 8], -1)[1] * 2

    given = torch.randn(4, 6), torch.randn(6, 4), torch.randn(6, 8)
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(second_half)(*given)
    assert_clean(result)
    assert result.status == 0, str(result)
    torch._dynamo.reset()
    with wrong_element(1, 3) as planted, kernelscope.shadow() as wrong:
        torch.compile(second_half)(*given)
    assert planted.kernel in [c.kernel_name for c in wrong.culprits], str(wrong)


def test_a_copy_that_is_written_to_in_place_is_not_its_source() -> None:
    """The backward copies a permuted product to other strides, and then triples every second element."""

    def tripled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        sums = (x + 2).contiguous()
        sums.as_strided([48], [2]).mul_(3)
        return (sums.permute(0, 2, 1).reshape(-1, 4) @ w).permute(1, 0)

    x, w = torch.randn(6, 4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(tripled)(x, w).square().mean().backward()
    assert_clean(result)


def test_a_buffer_that_is_computed_only_as_a_view_and_then_written_to() -> None:
    """Lowering keeps the permuted form of what `select` was written into, and writes to its diagonal."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.clone()
        y[1:, ::2] += x[:-1, ::2]
        y.t()[0].mul_(3)
        y.diagonal().add_(1)
        return y, y.t().contiguous()

    result = kernelscope.check_correctness(function, torch.randn(6, 6))
    assert result.status == 0, str(result)
    assert_clean(result)
    torch._dynamo.reset()
    with wrong_element(0, 8) as planted:
        wrong = kernelscope.check_correctness(function, torch.randn(6, 6))
    assert planted.kernel in {c.kernel_name for c in wrong.culprits}, str(wrong)


def test_a_part_that_the_same_kernel_writes_over() -> None:
    """The kernel fills both parts of the joined buffer, then doubles a diagonal of the whole."""

    def joined(x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([x.sin(), x], 1)
        doubled = torch.diagonal_scatter(both, both.diagonal(0, 1, 2) * 2, 0, 1, 2)
        return nn.functional.pad(doubled, [0, 1])

    x = torch.randn(4, 4, 4)
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(joined)(x)
    assert_clean(result)
    torch._dynamo.reset()
    with wrong_element(0, 3) as planted, kernelscope.shadow() as wrong:
        torch.compile(joined)(x)
    assert planted.kernel in [c.kernel_name for c in wrong.culprits], str(wrong)


def test_the_memory_of_a_product_goes_on_permuted() -> None:
    def heads(x: torch.Tensor, w: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        q = (x @ w).view(2, 8, 4, 8).transpose(1, 2)
        return q * c + 1

    args = torch.randn(16, 32), torch.randn(32, 32), torch.randn(2, 4, 8, 8)
    result = kernelscope.check_correctness(heads, args)
    assert_clean(result)
    torch._dynamo.reset()
    with wrong_element(1) as planted:
        result = kernelscope.check_correctness(heads, args)
    assert {c.kernel_name for c in result.culprits} == {planted.kernel}, str(result)


@pytest.mark.parametrize(
    ("kind", "training"),
    [
        pytest.param("MultiheadAttention", True, id="attention-train"),
        pytest.param("MultiheadAttention", False, id="attention-eval", marks=pytest.mark.slow),
        pytest.param("TransformerEncoderLayer", True, id="encoder-train", marks=pytest.mark.slow),
        pytest.param("TransformerEncoderLayer", False, id="encoder-eval"),
    ],
)
def test_attention(kind: str, training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 16)
    model: Any = (
        nn.MultiheadAttention(16, 2, batch_first=True)
        if kind == "MultiheadAttention"
        else nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    ).train(training)
    inputs = (x, x, x) if kind == "MultiheadAttention" else (x,)
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        made = torch.compile(model)(*inputs)
        if training:
            (made[0] if isinstance(made, tuple) else made).square().mean().backward()
    assert_clean(result)
    assert result.counts.buffers > 3


def test_a_copy_for_another_layout_is_known_as_one() -> None:
    """A convolution wants its input in an order of its own: the copy is made long before it is read."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.deep = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
            self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            y = self.narrow(self.wide(self.second(self.deep(x).permute(0, 2, 3, 1))).relu())
            return x + y.permute(0, 3, 1, 2)

    torch.manual_seed(0)
    result = kernelscope.check_correctness(Block(), (torch.randn(2, 3, 16, 16),))
    assert_clean(result)
