"""Clean programs that train: optimizers, and gradients of all kinds."""

from __future__ import annotations

import torch
import torch._dynamo.compiled_autograd
import torch.utils.checkpoint
from tests.programs.clean.models import Block
from tests.programs.clean.registry import leaf, program, run
from torch import nn
from torch.nn import functional as F


@program
def mlp_trained_with_a_compiled_adam() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    forward, step = torch.compile(model), torch.compile(optimizer.step)
    for _ in range(2):
        forward(torch.randn(8, 16)).square().mean().backward()
        step()
        optimizer.zero_grad()


@program
def lists_updated_in_place() -> None:
    weights = [torch.randn(7, 9), torch.randn(9), torch.randn(3, 9)]
    optimizer = torch.optim.SGD([nn.Parameter(w) for w in weights], lr=0.1, momentum=0.9, foreach=True)
    step = torch.compile(optimizer.step)
    for _ in range(2):
        for w in optimizer.param_groups[0]["params"]:
            w.grad = torch.randn_like(w)
        step()


@program
def checkpointed_blocks() -> None:
    first, second = Block(16, 2), nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.GELU())

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = torch.utils.checkpoint.checkpoint(first, x, use_reentrant=False)
        return torch.utils.checkpoint.checkpoint(second, x, use_reentrant=False)

    run(forward, leaf(2, 6, 16))


@program
def optimizers() -> None:
    for make in (
        lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
        lambda p: torch.optim.Adagrad(p, lr=1e-2, foreach=False),
        lambda p: torch.optim.SGD(p, lr=1e-1, momentum=0.9, nesterov=True, weight_decay=0.1, foreach=False),
    ):
        weights = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]
        optimizer = make(weights)
        step = torch.compile(optimizer.step)
        for _ in range(2):
            for w in weights:
                w.grad = torch.randn_like(w)
            step()
        torch._dynamo.reset()


@program
def an_optimizer_by_hand() -> None:
    """Master weights in float32, weights in bfloat16, gradients clipped, all of it in place."""

    @torch.compile
    def step(
        weights: list[torch.Tensor], master: list[torch.Tensor], grads: list[torch.Tensor]
    ) -> torch.Tensor:
        norm = torch.stack([g.float().norm() for g in grads]).norm()
        for w, m, g in zip(weights, master, grads, strict=True):
            m.mul_(0.99).sub_(g.float() * (1 / (norm + 1e-6)).clamp(max=1.0))
            w.copy_(m)
        return norm

    master = [torch.randn(6, 5), torch.randn(11)]
    weights = [m.bfloat16() for m in master]
    for _ in range(2):
        step(weights, master, [torch.randn_like(w) for w in weights])


class Scaled(torch.autograd.Function):
    """A gradient of its own, which is not that of what it computes."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, by: float) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[no-untyped-def]
        mask = x > 0
        ctx.save_for_backward(x, mask)
        ctx.mark_non_differentiable(mask)
        ctx.by = by
        return x * by, mask

    @staticmethod
    def backward(ctx, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[no-untyped-def]
        x, mask = ctx.saved_tensors
        return torch.where(mask, grad * ctx.by, x.sin()), None


@program
def gradients_of_ones_own() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y, mask = Scaled.apply(x.exp() - 1, 3.0)
        return y.cos() * mask

    run(forward, leaf(7, 8))


@program
def gradients_compiled_by_autograd() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        run(model, torch.randn(5, 8))


@program
def gradients_at_the_edges() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        kinks = (
            x.abs()
            + x.clamp(-0.5, 0.5)
            + F.hardtanh(x * 3)
            + x.relu().sqrt()
            + (x * 1e-20).norm(dim=1, keepdim=True)
        )
        return kinks + torch.where(x > 0, x.clamp(min=1e-6).log(), x) + x.max(1, keepdim=True).values

    x = torch.randn(8, 9)
    x[0], x[1, :4] = 0.0, 0.5
    run(forward, x.requires_grad_())
