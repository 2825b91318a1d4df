"""Whole models: evaluation and training against eager, and what stays with ATen."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from examples.gcu_models import Mlp, ResNetBlock, TransformerBlock
from tests.gcu.looking import compile_and_look

MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: Mlp(16, 32, 8), (12, 16)),
    "attention": (lambda: TransformerBlock(32, 4), (2, 8, 32)),
    "sdpa": (lambda: TransformerBlock(32, 4, sdpa=True), (2, 8, 32)),
    "resnet": (lambda: ResNetBlock(4), (2, 4, 6, 6)),
}
MATMULS = {"aten.mm.default", "aten.bmm.default", "aten.addmm.default"}


@pytest.mark.parametrize("name", MODELS)
def test_training_and_evaluation(name: str) -> None:
    make, shape = MODELS[name]
    model = make()
    reference = copy.deepcopy(model)
    compiled, look = compile_and_look(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (model, reference)]
    x, target = torch.randn(*shape), torch.randn(*shape)
    losses = []
    for step in range(20):
        pair = []
        for run, optimizer in zip((compiled, reference), optimizers, strict=True):
            out = run(x)
            loss = F.mse_loss(out, target[..., : out.shape[-1]])
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                named = reference.named_parameters()
                gradients = {n: p.grad.clone() for n, p in named if p.grad is not None}
            optimizer.step()
            pair.append(loss.item())
        if step == 0:
            for n, p in model.named_parameters():
                assert p.grad is not None
                torch.testing.assert_close(p.grad, gradients[n], rtol=1e-3, atol=1e-5)
        losses.append(pair)
    for got, expected in losses:
        assert got == pytest.approx(expected, rel=1e-3)
    assert losses[-1][0] < losses[0][0]
    model.eval()
    reference.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), reference(x), rtol=1e-3, atol=1e-4)
    directions = {c.direction for c in look.compilations}
    assert directions == {"forward", "backward", "inference"}
    through_aten = {f.target for f in look.fallbacks}
    if name in ("mlp", "attention"):
        assert not through_aten
    else:
        assert all(f.reason and f.origin for f in look.fallbacks)


def test_large_matmuls_of_a_block_are_all_that_aten_does() -> None:
    compiled, look = compile_and_look(TransformerBlock(128, 4))
    compiled(torch.randn(2, 64, 128)).sum().backward()
    assert look.fallbacks
    assert {f.target for f in look.fallbacks} <= MATMULS
    assert all("large matmul" in f.reason for f in look.fallbacks)


def test_gradcheck_in_double_precision() -> None:
    w = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = F.layer_norm(x @ w, (5,)) * torch.sigmoid(x)
        return (F.gelu(h).softmax(-1) * x.tanh()).sum(0) + h.exp().mean()

    compiled, _ = compile_and_look(f)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(compiled, (x, w))


def test_a_transformer_block_needs_few_kernels() -> None:
    """Fusion works: softmax and layer norm are one kernel each, with what surrounds them."""
    with torch.no_grad():
        compiled, look = compile_and_look(TransformerBlock(128, 4))
        compiled(torch.randn(2, 64, 128))
    assert look.kernels <= 9, look.dsl
