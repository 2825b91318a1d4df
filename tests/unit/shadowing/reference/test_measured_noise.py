"""Small errors that show how far rounding may move a result: they must not make something else of it."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelscope.shadowing.reference.small_errors.rounding import shaken, shaken_result, shaken_terms


def noisy(fn: Any, *inputs: torch.Tensor) -> torch.Tensor:
    """What a graph gives in float64 with an error after each node."""
    module = make_fx(fn, tracing_mode="fake")(*inputs)
    generator = torch.Generator().manual_seed(0)
    given = iter(inputs)
    values: dict[torch.fx.Node, Any] = {}
    result = torch.empty(0)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = next(given)
            values[node] = value.double() if value.is_floating_point() else value
        elif node.op == "call_function":
            args = torch.fx.map_arg(node.args, values.__getitem__)
            made = node.target(*shaken_terms(node, args, generator), **node.kwargs)
            values[node] = result = shaken_result(node, made, generator)
    return result


def masked_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x = x.masked_fill(~mask, torch.finfo(torch.bfloat16).min)
    exp = (x - x.amax(-1, keepdim=True)).exp()
    return exp / exp.sum(-1, keepdim=True)


def test_a_row_that_is_masked_stays_finite() -> None:
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[1], mask[2, :4] = False, False
    found = noisy(masked_softmax, torch.randn(3, 8).bfloat16(), mask)
    assert found.isfinite().all()
    assert torch.allclose(found.sum(-1), torch.ones(3, dtype=torch.float64), atol=0.1)


def test_numbers_that_stand_for_infinity_keep_their_value() -> None:
    value = torch.tensor([1.0, torch.finfo(torch.float32).min, -torch.inf, 0.0], dtype=torch.float64)
    moved = shaken(value, 0.01, torch.Generator().manual_seed(0))
    assert moved[1:].tolist() == value[1:].tolist()
    assert moved[0] != value[0]
