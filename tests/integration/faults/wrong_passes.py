"""Passes over the FX graph that change what it computes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .planting import Canary, Fault, configured

aten = torch.ops.aten


def sums_for_differences(canary: Canary) -> Callable[[torch.fx.Graph], None]:
    """Every addition of two tensors becomes a subtraction."""

    def wrong_pass(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is aten.add.Tensor:
                node.target = aten.sub.Tensor
                canary.hits += 1

    return wrong_pass


def adds_before_gradients(canary: Canary) -> Callable[[torch.fx.Graph], None]:
    def wrong_pass(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if getattr(node.target, "__name__", "") == "add":
                node.target = torch.sub
                canary.hits += 1

    return wrong_pass


def _program() -> None:
    x, y = torch.randn(6, 10), torch.randn(6, 10)
    torch.compile(lambda x, y: (x.sin() + y).exp())(x, y)


def _trained() -> None:
    x, y = torch.randn(6, 10, requires_grad=True), torch.randn(6, 10, requires_grad=True)
    torch.compile(lambda x, y: (x.sin() + y).exp())(x, y).sum().backward()


def passing(name: str, program: Callable[[], None], setting: str, make: Callable[..., object]) -> Fault:
    return Fault(
        name, "wrong pass", program, configured(setting, make), "=output 0", setting, "", "wrong-stage"
    )  # fmt: skip


PASSES = [
    passing("after gradients", _program, "post_grad_custom_post_pass", sums_for_differences),
    passing("before the others", _program, "post_grad_custom_pre_pass", sums_for_differences),
    passing("forward and backward together", _trained, "joint_custom_post_pass", sums_for_differences),
    passing("as traced", _program, "pre_grad_custom_pass", adds_before_gradients),
]
