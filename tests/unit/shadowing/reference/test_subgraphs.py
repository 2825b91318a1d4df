"""Graphs that an operator is given: under `vmap` they run on whole tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from kernelscope.shadowing.reference.flex_attention import made_gradients
from kernelscope.shadowing.reference.subgraphs import with_batched_graphs


class Counts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_casts_are_not_made_for_each_element() -> None:
    def score(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.prims.convert_element_type.default((q - k).abs(), torch.float16)
        return found * 0.25

    graph = make_fx(score)(torch.tensor(1), torch.tensor(2))
    whole, rest = with_batched_graphs((graph, 3))
    assert rest == 3
    q, k = torch.arange(8), torch.arange(16)
    results, calls = [], []
    for function in (graph, whole):
        with Counts() as mode:
            results.append(torch.vmap(torch.vmap(function, (None, 0)), (0, None))(q, k))
        calls.append(mode.calls)
    assert torch.equal(*results)
    assert results[1].dtype == torch.float16
    assert calls[0] > 128  # torch has no rule for this operator
    assert calls[1] < 10


def test_only_captured_tensors_that_have_a_gradient_get_one() -> None:
    def gradients(score: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor | None]:
        indices, (slopes, bias) = others[:4], others[4:]
        assert len(indices) == 4
        return [score * slopes, None, None, None, None, None, bias * score]

    zero = torch.tensor(0)
    graph = make_fx(gradients)(torch.ones(()), zero, zero, zero, zero, torch.ones(()), torch.ones(()))
    assert made_gradients(graph) == [False, True]
    assert made_gradients(None) is None
