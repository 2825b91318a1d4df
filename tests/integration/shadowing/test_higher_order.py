"""Operators that are given functions, and operators of the user's: judged, no alarm, and a fault in each is named."""

# ruff: noqa: E501  # one program, one line
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.config
import torch._inductor.config
from tests.integration.faults.planting import Fault, in_kernel, look_for
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope import ShadowResult

X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
ROW = torch.randn(8, generator=torch.Generator().manual_seed(2))


def scanned(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    last, all_of_them = scan(lambda c, x: (c * 1.75 + x.sin(), c + x), start, rows)
    return all_of_them.flip(0) + last


def scanned_at_once(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return associative_scan(lambda a, b: a + b, rows * 1.75, 0, combine_mode="generic") + start


def mapped_rows(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return mapped(lambda x, y: (x * 1.75 + y).relu(), rows, start).sum(0)


def regions(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    layer = torch.compiler.nested_compile_region(lambda x: (x * 1.75).sin())
    return layer(layer(rows)) + start


def chosen(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.cond(rows.sum() > -1e3, lambda x: x.exp() * 1.75, lambda x: x.sin(), (rows,)) + start


@torch.library.custom_op("kernelscope_templates::add_into", mutates_args=("out", "others"))
def add_into(x: torch.Tensor, out: torch.Tensor, others: list[torch.Tensor]) -> None:
    out.add_(x)
    for other in others:
        other.sub_(x)


def own_operator(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Its outputs have names that other operators use for something else."""
    y, z = rows.sin(), rows.cos()
    torch.ops.kernelscope_templates.add_into(rows, y, [z])
    return y * 1.75 + z * start


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * context.saved_tensors[0].cos() * 1.75


def own_gradient(start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    applied: torch.Tensor = Doubled.apply(rows + start)  # type: ignore[no-untyped-call]
    return applied


# By name: the function, whether its gradient is taken too, and the phase of the kernel that has the fault.
PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], bool, str]] = {
    "scan": (scanned, False, "forward"),
    "scan with gradients": (scanned, True, "forward"),
    "associative scan": (scanned_at_once, False, "forward"),
    "map": (mapped_rows, False, "forward"),
    "nested regions": (regions, False, "forward"),
    "cond": (chosen, False, "forward"),
    "an operator of the user's": (own_operator, False, "forward"),
    "a gradient of the user's": (own_gradient, True, "backward"),
}


@pytest.fixture(autouse=True)
def scalars_are_captured() -> Iterator[None]:
    """Without it `scan` is not compiled."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield
    torch._dynamo.reset()


def program(name: str) -> Callable[[], None]:
    fn, has_gradients, _ = PROGRAMS[name]

    def run() -> None:
        made = torch.compile(fn)(*(t.clone().requires_grad_(has_gradients) for t in (ROW, X)))
        if has_gradients:
            made.square().sum().backward()

    return run


def left_out(result: ShadowResult) -> list[str]:
    return [str(u) for u in result.unchecked if not u.kernel_name.startswith(("stage", "function"))]


SHORT = {"scan", "an operator of the user's", "nested regions"}
EACH = [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in PROGRAMS]


@pytest.mark.parametrize("name", EACH)
def test_judged_without_an_alarm(name: str) -> None:
    torch._dynamo.reset()
    with fresh_cache(), kernelscope.shadow() as result:
        program(name)()
    kernels = [culprit for culprit in result.culprits if culprit.verdict != "wrong-function"]
    assert not kernels, str(result)
    assert result.counts.buffers
    assert not left_out(result), str(result)


@pytest.mark.parametrize("name", EACH)
def test_a_fault_is_named(name: str) -> None:
    fault = Fault(
        name, "higher order", program(name), in_kernel(r"1\.75", "1.5"), "", phase=PROGRAMS[name][2]
    )
    result, canary = look_for(fault)
    assert result.culprit is not None, str(result)
    assert result.culprit.kernel_name == canary.kernels[0], str(result)
    assert (result.culprit.verdict, result.culprit.phase) == ("wrong-kernel", fault.phase), str(result)


def test_what_lowering_patterns_replaced_is_evaluated() -> None:
    """Frozen weights: convolution and ReLU, linear and GELU become operators that only lowering knows."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4), nn.GELU()).eval()
    torch._dynamo.reset()
    with (
        torch.no_grad(),
        fresh_cache(),
        torch._inductor.config.patch(freezing=True),
        kernelscope.shadow() as result,
    ):
        torch.compile(model)(torch.randn(2, 3, 8, 8))
    assert not result.culprits, str(result)
    assert not left_out(result), str(result)
