"""Buffers that hold something else than their origins suggest are judged with their readers."""

from __future__ import annotations

import pytest
import torch
from tests.integration.faults.wrong_element import wrong_element

import kernelscope
from kernelscope import ShadowResult


def counts_breaks(x: torch.Tensor) -> torch.Tensor:
    """One kernel stores booleans as the integers that `cumsum` wants; all is computed from constants."""
    steps = torch.cat([torch.full((2, 1), -1), torch.arange(7).expand(2, 7)], 1)
    return torch.cumsum((steps[:, 1:] - steps[:, :-1]) != 1, -1) + x


def shadowed() -> ShadowResult:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(counts_breaks)(torch.ones(2, 7, dtype=torch.int64))
    return result


def test_a_reader_that_is_right_settles_it() -> None:
    result = shadowed()
    assert not result, str(result)
    assert [str(each) for each in result.unchecked] == []


def test_a_fault_in_it_is_named() -> None:
    with wrong_element(0, 3) as planted:
        result = shadowed()
    assert planted.kernel
    assert result.culprit is not None, str(result)
    assert result.culprit.kernel_name == planted.kernel


def doubles_imaginary_parts(x: torch.Tensor) -> torch.Tensor:
    """No kernel reads what these kernels leave: ATen makes views of it, and the graph returns one."""
    pairs = x.reshape(-1, 2) + 1
    torch.view_as_complex(pairs).imag.mul_(3)
    return pairs


@pytest.mark.parametrize("dynamic", [False, True], ids=["guessed", "unknown"])
def test_a_fault_is_named_if_only_the_result_of_the_graph_tells(dynamic: bool) -> None:
    x = torch.randn(4, 8)
    for launch in (0, 1):
        torch._dynamo.reset()
        with wrong_element(launch, 3) as planted, kernelscope.shadow() as wrong:
            torch.compile(doubles_imaginary_parts, dynamic=dynamic)(x)
        named = {name for c in wrong.culprits for name in (c.kernel_name, *c.joined)}
        assert planted.kernel in named, str(wrong)
        assert all(c.verdict == "wrong-kernel" for c in wrong.culprits), str(wrong)
        assert not wrong.unchecked, str(wrong)
    torch._dynamo.reset()
    with kernelscope.shadow() as clean:
        torch.compile(doubles_imaginary_parts, dynamic=dynamic)(x)
    assert (clean.culprits, clean.unchecked) == ([], []), str(clean)


def test_parts_of_a_result_that_get_another_layout() -> None:
    """Inductor copies both gradients of a convolution, or views them anew: they are items without a node."""
    x, w = (torch.rand(s, dtype=torch.float16, requires_grad=True) for s in ((1, 1, 4, 3), (1, 2, 3, 4)))
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        compiled = torch.compile(torch.nn.functional.conv_transpose2d)
        compiled(x, w, stride=2, padding=1, output_padding=1).sum().backward()
    assert not result, str(result)
    assert [str(each) for each in result.unchecked] == []


def test_a_function_that_is_wrong_settles_a_doubt() -> None:
    """The reader needs a sum that was written to in place: it cannot be judged together with the kernel."""

    def conjugated(x: torch.Tensor) -> torch.Tensor:
        y = (x + 2).contiguous()
        y.as_strided([32], [1]).add_(x.reshape(-1))
        pairs = torch.slice_scatter(y, y[:4] * 2, 0, 0, 8, 2) * y * 2
        return torch.view_as_real(torch.view_as_complex(pairs.reshape(-1, 2).contiguous()).conj() * 2)

    torch._dynamo.reset()
    with wrong_element(0, 1) as planted:
        result = kernelscope.check_correctness(conjugated, torch.randn(8, 2, 2))
    assert [c.kernel_name for c in result.culprits] == [planted.kernel], str(result)
