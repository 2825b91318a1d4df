"""Launches in a wrong order, and memory that is given away too early: each kernel itself is right."""

# ruff: noqa: E501  # one fault, one line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.scheduler import Scheduler
from torch.nn import functional as F

from .other_kinds import X, calling, differentiating
from .planting import Fault, Plant, in_call, replacing

W = torch.randn(10, 10, generator=torch.Generator().manual_seed(8))


def added_to_after_a_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    made = x @ w
    x.add_(1)
    return made


def scaled_after_a_sum(x: torch.Tensor) -> torch.Tensor:
    made = x.cumsum(1)
    x.mul_(2)
    return made


def cleared_after_a_layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = F.linear(x, w, b)
    b.zero_()
    return made


def summed_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sums = x.cumsum(1)
    more = sums * 2 + 1
    return more.cumsum(0), sums.cumsum(0)


def weighted(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = x @ w
    weights = torch.softmax(scores, 1)
    return weights @ w, scores @ weights.t()


def waves(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin() @ w


def writing_first(original: Callable[..., None]) -> Callable[..., None]:
    """The scheduler forgets that a write has to wait for the reads of the old value."""

    def codegen(self: Scheduler, nodes: Any) -> None:
        self.nodes = sorted(nodes, key=lambda node: not node.has_aliasing_or_mutation())
        self.compute_last_usage()
        return original(self, self.nodes)

    return codegen


def early(name: str, program: Callable[[], None], plant: Plant, node: str) -> Fault:
    return Fault(
        name,
        "wrong schedule",
        program,
        plant,
        node,
        "cpp_fused",
        verdict="early-write",
        finest="backend inductor",
    )


SCHEDULES = [
    # -- a write in place before what reads the old value
    early("before a product", calling(added_to_after_a_product, X, W), replacing(Scheduler, "_codegen", writing_first), "arg0_1"),
    early("before a sum", calling(scaled_after_a_sum, X), replacing(Scheduler, "_codegen", writing_first), "arg0_1"),
    early("before a layer", calling(cleared_after_a_layer, X, W, W[0]), replacing(Scheduler, "_codegen", writing_first), "arg2_1"),
    # -- memory that another value still needs
    early("of a sum", calling(summed_twice, X), in_call(r"buf2 = empty_strided_cpu\([^\n]*", "buf2 = buf1"), "cumsum"),
    early("of scores", calling(weighted, X, W), in_call(r"buf4 = empty_strided_cpu\([^\n]*", "buf4 = buf0"), "mm"),
    Fault("of what is saved", "wrong schedule", differentiating(waves, X, W), in_call(r"buf1 = empty_strided_cpu\([^\n]*(\n *cpp_fused_sin_0)", r"buf1 = buf0\1"), "mm", "return", "", "wrong-result", finest="backend inductor"),
]  # fmt: skip
BY_THE_SCHEDULER = SCHEDULES[:3]
