"""An operator that mishandles a layout which Inductor chose is named, though eager mishandles it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.integration.faults.planting import in_call
from torch._inductor.utils import fresh_cache

import kernelscope

X = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
LONG = torch.randn(5, 5, 6, generator=torch.Generator().manual_seed(2))


def _operator(name: str, compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Inductor may choose the layout of its argument."""

    @torch.library.custom_op(name, mutates_args=(), tags=(torch.Tag.flexible_layout,))
    def operator(x: torch.Tensor) -> torch.Tensor:
        return compute(x)

    @operator.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape)

    return operator


def takes_it_for_contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided(x.shape, (x.shape[1], 1)) * 1.0


@pytest.fixture(scope="module")
def rows() -> Callable[..., torch.Tensor]:
    return _operator("kernelscope_layouts::rows", takes_it_for_contiguous)


@pytest.fixture(scope="module")
def any_rows() -> Callable[..., torch.Tensor]:
    return _operator("kernelscope_layouts::any_rows", lambda x: (x * 1.0).contiguous())


PROGRAMS: dict[str, Callable[..., torch.Tensor]] = {
    "pointwise": lambda of: of(X.t().contiguous() + 1),
    "copy": lambda of: of(X.t().clone(memory_format=torch.contiguous_format)),
    "product": lambda of: of((X.t() @ LONG[..., 0]).t().contiguous()),
    "sum": lambda of: of(LONG.permute(2, 1, 0).sum(0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mishandled_layout_is_named(name: str, rows: Callable[..., torch.Tensor]) -> None:
    program = lambda: PROGRAMS[name](rows)  # noqa: E731
    expected = program()
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        made = torch.compile(program)()
    assert not torch.allclose(made, expected), "Inductor chose eager's layout"
    culprit = result.culprit
    assert culprit is not None, str(result)
    assert (culprit.verdict, culprit.kernel_name) == ("wrong-kernel", "kernelscope_layouts.rows.default")
    assert "strides [1, 5] that Inductor chose" in culprit.reason
    assert len(result.culprits) == 1


def test_the_argument_whose_layout_matters_is_named() -> None:
    @torch.library.custom_op("kernelscope_layouts::two", mutates_args=(), tags=(torch.Tag.flexible_layout,))
    def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return takes_it_for_contiguous(x) + y

    two.register_fake(lambda x, y: x.new_empty(x.shape))
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda: two(X.t().contiguous().sin(), X.t().contiguous().cos()))()
    assert result.culprit is not None, str(result)
    assert "that Inductor chose for sin differs" in result.culprit.reason


def test_a_mishandled_layout_in_a_backward_is_named(rows: Callable[..., torch.Tensor]) -> None:
    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return rows((gradient * X).t().contiguous() + 1)

    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(Turned.apply)(X.clone().requires_grad_()).square().sum().backward()
    assert [each.kernel_name for each in result] == ["kernelscope_layouts.rows.default"], str(result)


class Attention(torch.nn.Module):
    """Behind convolutions, as in a U-Net: what the forward saves for its backward has another layout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = (torch.nn.Conv2d(*sizes, 3, padding=1) for sizes in ((3, 32), (32, 3)))
        self.given = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pixels = torch.nn.functional.silu(self.first(x)).flatten(2).transpose(1, 2)
        parts = [layer(pixels).view(2, 64, 4, 8).transpose(1, 2) for layer in self.given]
        found = torch.nn.functional.scaled_dot_product_attention(*parts)
        out: torch.Tensor = self.last(found.transpose(1, 2).reshape(2, 64, 32).mT.reshape(2, 32, 8, 8))
        return out


def test_attention_behind_convolutions_is_not_accused() -> None:
    torch.manual_seed(0)
    model = torch.compile(Attention())
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        model(torch.randn(2, 3, 8, 8)).square().mean().backward()
    assert result.status == 0, str(result)


def test_a_layout_that_is_handled_is_fine(any_rows: Callable[..., torch.Tensor]) -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        for program in PROGRAMS.values():
            torch.compile(lambda p=program: p(any_rows))()  # type: ignore[misc]
    assert not result, str(result)
    assert result.status == 0


def _to_one_channel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(torch.cat([torch.sin(x), x], 1), weight, bias)


def _shadowed_convolution() -> kernelscope.ShadowResult:
    given = [torch.randn(2, 2, 8, 8), torch.randn(1, 4, 1, 1), torch.randn(1)]
    torch._dynamo.reset()
    with fresh_cache(), kernelscope.shadow() as result:
        torch.compile(_to_one_channel)(*(each.requires_grad_() for each in given)).square().mean().backward()
    return result


def test_a_result_of_which_also_an_input_is_an_origin_is_judged() -> None:
    """Inductor reads the weight through a view of its own: so it is among the origins of what is returned."""
    result = _shadowed_convolution()
    assert result.status == 0, str(result)
    assert not result.unchecked, str(result)


def test_a_fault_in_such_a_result_is_named() -> None:
    plant = in_call(r"(extern_kernels\.convolution\(buf\d+)", r"\1 * 1.25")
    with plant() as canary:
        result = _shadowed_convolution()
    assert canary.hits == 1
    assert result.status == 1, str(result)
    assert [each.kernel_name for each in result] == ["extern_kernels.convolution"], str(result)
