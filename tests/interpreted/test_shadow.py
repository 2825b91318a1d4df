"""Shadowing Triton kernels: Inductor's own, and the user's inside compiled code."""

# ruff: noqa: E501  # one fault, one line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.integration.faults.planting import Plant, in_call, in_kernel
from tests.integration.faults.wrong_element import wrong_element

import kernelscope
from kernelscope import ShadowResult

pytestmark = pytest.mark.usefixtures("inductor_triton")

X, Y = torch.linspace(-2, 3, 60).reshape(6, 10), torch.linspace(1, -1, 60).reshape(6, 10)


def shadowed(fn: Callable[..., Any], *args: torch.Tensor, backward: bool = False) -> ShadowResult:
    with kernelscope.shadow() as result:
        leaves = [a.clone().requires_grad_(backward) for a in args]
        made = torch.compile(fn)(*leaves)
        if backward:
            made.square().sum().backward()
    return result


CLEAN: dict[str, tuple[Callable[..., Any], bool]] = {
    "pointwise": (lambda x, y: torch.relu(x * 2 + y) - 1, False),
    "reductions": (lambda x, y: (x.sum(1), y.amax(0), (x * y).mean()), False),
    "gradients": (lambda x, y: torch.relu(x * y).sum(1), True),
    "several outputs": (lambda x, y: (x + y, x - y, x > y, (x * 3).to(torch.int32)), False),
    "views": (lambda x, y: torch.cat([x.t().contiguous(), y.t() * 2], 1)[:, 1:], False),
    "joined, then written in place": (lambda x, y: joined_then_written(x, y), False),
    "equal numbers, sorted": (lambda x, y: sorted_by_expert(x, y), False),
}


def sorted_by_expert(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As a mixture of experts does it: the order of rows of one expert is not defined."""
    order = x.flatten().to(torch.int64).argsort()
    places = torch.empty_like(order)
    places[order] = torch.arange(60)
    return (y * 2).flatten()[order // 2], places


def joined_then_written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    whole = torch.cat([x @ y.t(), x @ (y.t() * 2)], -1)
    made = whole.clone()
    made.index_add_(1, torch.arange(12), whole * 2)
    return made.t()


@pytest.mark.parametrize("name", CLEAN)
def test_no_alarm(name: str) -> None:
    fn, backward = CLEAN[name]
    result = shadowed(fn, X, Y, backward=backward)
    assert not result, str(result)
    assert result.counts.buffers
    assert result.status == 0
    assert not [u for u in result.unchecked if not u.kernel_name.startswith("stage")]


FAULTS: dict[str, tuple[Callable[..., Any], Plant, str, bool]] = {
    "operator": (lambda x, y: x * 2 + y, in_kernel(r"tmp2 \+ tmp3", "tmp2 - tmp3"), "add", False),
    "descending": (lambda x, y: sorted_by_expert(x, y), in_kernel("descending=False", "descending=True"), "index", False),
    "constant": (lambda x, y: torch.relu(x * 1.5), in_kernel(r"1\.5", "1.25"), "relu", False),
    "mask": (lambda x, y: x.sum(1), in_kernel(r"r0_index < r0_numel", "r0_index < r0_numel - 1"), "sum_1", False),
    "identity": (lambda x, y: x.sum(1), in_kernel(r"(tl\.where\([^,]*, \w+), 0\)", r"\1, 0.5)"), "sum_1", False),
    "index": (lambda x, y: x[:, 1:] * 2, in_kernel(r"1 \+ x0", "x0"), "mul", False),
    "swapped": (lambda x, y: x - 2 * y, in_call(r"run\(arg1_1, arg0_1", "run(arg0_1, arg1_1"), "sub", False),
    "precision": (lambda x, y: x * y, in_kernel(r"tmp0 \* tmp1", "(tmp0 * tmp1).to(tl.float16).to(tl.float32)"), "mul", False),
    "gradient": (lambda x, y: torch.relu(x * 3), in_kernel(r"3\.0", "2.0", kernel="fused_mul_threshold_backward"), "mul_1", True),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    fn, plant, node, backward = FAULTS[name]
    with plant() as canary:
        result = shadowed(fn, X, Y, backward=backward)
    canary.assert_planted()
    assert result.culprit is not None, str(result)
    assert result.culprit.node == node, str(result)
    assert result.culprit.kernel_name in (canary.kernels or [result.culprit.kernel_name]), str(result)
    assert {c.kernel_name for c in result} == {result.culprit.kernel_name}, str(result)
    assert result.culprit.kind == "triton"
    assert result.culprit.phase == ("backward" if backward else "forward")


def test_a_kernel_that_reads_nothing() -> None:
    """The place of the largest of one element, for which Inductor writes a kernel of its own."""
    result = shadowed(lambda x: torch.max(x[:1], 0), X)
    assert not result, str(result)
    assert result.counts.buffers >= 2
    assert [str(each) for each in result.unchecked] == []


def test_a_constant_that_triton_rounds_to_float32() -> None:
    """A bug of Inductor: `tl.load(…, other=0.1)` of float64."""

    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (1, 1), value=0.1)

    values = X.double()
    result = shadowed(padded, values)
    torch._dynamo.reset()
    if torch.equal(torch.compile(padded)(values), padded(values)):
        pytest.skip("this version of torch does not round it")
    assert result.culprit is not None, str(result)
    assert "constant_pad_nd" in result.culprit.kernel_name


def stacked(x: torch.Tensor, y: torch.Tensor) -> Any:
    parts = (x @ y.t()).view(36)[:8].unbind(0)
    whole = torch.stack(parts, 0)
    return whole, whole.flip(0) * 2


def added_to(x: torch.Tensor, y: torch.Tensor) -> Any:
    given = x @ y.t()
    whole = given.cos()
    whole.index_add_(0, torch.arange(6), given * 2)
    return whole


@pytest.mark.parametrize("fn", [stacked, added_to])
def test_a_value_that_several_kernels_make(fn: Callable[..., Any]) -> None:
    """It is judged when the last of them is over, and the one that is wrong is named."""
    kernels = set[str]()
    for launch in range(4):
        torch._dynamo.reset()
        with wrong_element(launch) as planted:
            result = shadowed(fn, X, Y)
        assert planted.kernel
        assert planted.kernel in {n for c in result.culprits for n in (c.kernel_name, *c.joined)}, str(result)
        kernels.add(planted.kernel)
    assert len(kernels) > 1


def test_a_view_of_memory_that_is_written_in_place() -> None:
    """One kernel makes it, another one adds to its diagonal, and a product reads it as a view."""

    def program(x: torch.Tensor) -> torch.Tensor:
        made = x.clone()
        made.diagonal(0, 2, 0).add_(1)
        return (made.transpose(-1, -2) @ made).sin()

    result = shadowed(program, torch.randn(6, 4, 6).half())
    assert not result, str(result)
    assert not result.failures, result.details()
    assert result.status == 0, str(result)
