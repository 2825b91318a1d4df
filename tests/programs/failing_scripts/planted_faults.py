"""Mistakes in the compiler, for the scripts beside this file: each function plants one."""

from __future__ import annotations

import torch
import torch._inductor.config as config
from torch._inductor.ir import Pointwise
from torch._inductor.lowering import lowerings

aten = torch.ops.aten


def a_lowering_that_fails() -> None:
    def wrong(x):
        raise AssertionError("digamma has no loop body")

    lowerings[aten.digamma.default] = wrong


def a_lowering_with_a_wrong_result() -> None:
    before = lowerings[aten.tanh.default]
    multiply = lowerings[aten.mul.Tensor]
    lowerings[aten.tanh.default] = lambda x: multiply(before(x), 1.01)


def a_lowering_that_reads_outside() -> None:
    def wrong(x):
        load = x.make_loader()

        def body(index):
            return load([each + (1 << 40) for each in index])

        return Pointwise.create(
            device=x.get_device(), dtype=x.get_dtype(), inner_fn=body, ranges=x.get_size()
        )

    lowerings[aten.erf.default] = wrong


def a_pass_with_a_wrong_result() -> None:
    def subtract(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is aten.add.Tensor:
                node.target = aten.sub.Tensor

    config.post_grad_custom_post_pass = subtract
