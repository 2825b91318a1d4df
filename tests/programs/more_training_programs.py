"""More training programs: some with an error that can be switched on, others without any.

They were written after the comparison, to see whether it holds on programs that it was not built on.
"""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.training_programs import Program, Setup, Transformer, next_token_loss, steps, tokens
from torch import nn
from torch.nn import functional as F

PLANTED: dict[str, Program] = {}
HEALTHY: dict[str, Program] = {}


def planted(program: Program) -> Program:
    PLANTED[program.__name__] = program
    return program


def healthy(program: Program) -> Program:
    HEALTHY[program.__name__] = program
    return program


def _images(setup: Setup) -> torch.Tensor:
    return setup.to(torch.randn(4, 3, 12, 12))


class _Convolutions(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.first(x)))
        y = self.second(x)
        x = F.relu(y) if self.bug == "residual" else F.relu(x + y)  # planted: residual
        pooled = x.amax((2, 3)) if self.bug == "pooling" else x.mean((2, 3))  # planted: pooling
        return self.last(pooled)


def _convolutions(setup: Setup, bug: str = "") -> Any:
    torch.manual_seed(1)
    model, x = setup.to(_Convolutions(bug)), _images(setup)
    labels = torch.tensor([1, 3, 5, 7], device=setup.device)
    return steps(setup, model, lambda run, step: F.cross_entropy(run(x).float(), labels))


@planted
def residual(setup: Setup, bug: bool) -> Any:
    return _convolutions(setup, "residual" if bug else "")


@planted
def pooling(setup: Setup, bug: bool) -> Any:
    return _convolutions(setup, "pooling" if bug else "")


@planted
def labels(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(2)
    model, ids = setup.to(Transformer(layers=1)), tokens(setup)

    def loss_of(run: Any, step: int) -> torch.Tensor:
        wanted = ids[:, :-1] if bug else ids[:, 1:]
        return F.cross_entropy(run(ids)[:, :-1].flatten(0, 1).float(), wanted.flatten())  # planted: labels

    return steps(setup, model, loss_of)


@planted
def temperature(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(3)
    student, teacher = setup.to(nn.Linear(16, 10)), setup.to(nn.Linear(16, 10))
    x = setup.to(torch.randn(32, 16))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        with torch.no_grad():
            wanted = (teacher(x) / (1.0 if bug else 2.0)).softmax(-1)  # planted: temperature
        return F.kl_div((run(x) / 2.0).log_softmax(-1), wanted, reduction="batchmean") * 4

    return steps(setup, student, loss_of)


@planted
def decay(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(4)
    model, x = setup.to(nn.Linear(16, 16)), setup.to(torch.randn(32, 16))
    average = [p.detach().clone() for p in model.parameters()]

    for _ in range(3):
        model(x).float().square().mean().backward()
        with torch.no_grad():
            for p, ema in zip(model.parameters(), average, strict=True):
                p.add_(p.grad, alpha=-0.5)
                ema.mul_(0.5 if bug else 0.9).add_(p, alpha=0.1)  # planted: decay
                p.grad = None
    return average


@planted
def accumulation(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(5)
    model, x = setup.to(nn.Linear(16, 16)), setup.to(torch.randn(4, 8, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in x:
        loss = model(part).float().square().mean()
        loss = loss if bug else loss / 4  # planted: accumulation
        loss.backward()  # planted: accumulation
    optimizer.step()
    return [p.detach() for p in model.parameters()]


class _Cell(nn.Module):
    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.inner, self.gates = bug, nn.Linear(12, 24), nn.Linear(24, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[:, 0]).repeat(1, 2)
        for t in range(x.shape[1]):
            new, gate = torch.tanh(self.inner(x[:, t])), torch.sigmoid(self.gates(h))
            h = (1 - gate) * new + gate * h if not self.bug else gate * new + (1 - gate) * h  # planted: gates
        return h


@planted
def gates(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(6)
    model, x = setup.to(_Cell(bug)), setup.to(torch.randn(8, 5, 12))
    return steps(setup, model, lambda run, step: (run(x).float() - 1).square().mean())


@planted
def smoothing(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(7)
    model, x = setup.to(nn.Linear(16, 10)), setup.to(torch.randn(32, 16))
    wanted = torch.randint(0, 10, (32,), device=setup.device)

    def loss_of(run: Any, step: int) -> torch.Tensor:
        logits = run(x)
        hot = F.one_hot(wanted, 10).to(logits.dtype) * (0.9 if bug else 0.8) + 0.02  # planted: smoothing
        return -(hot * logits.log_softmax(-1)).sum(-1).mean()

    return steps(setup, model, loss_of)


@planted
def clipping(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(8)
    model, x = (
        setup.to(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))),
        setup.to(torch.randn(32, 16)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(x).float().square().sum().backward()
        norms = torch.stack([p.grad.float().norm() for p in model.parameters()])
        total = norms.sum() if bug else norms.norm()  # planted: clipping
        for p in model.parameters():
            p.grad.mul_((1.0 / total).clamp(max=1.0).to(p.grad.dtype))
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


@planted
def rotation(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(9)
    model, x = setup.to(nn.Linear(16, 16)), setup.to(torch.randn(4, 20, 16))
    angles = torch.arange(20, device=setup.device)[:, None] * 100 ** (
        -torch.arange(8, device=setup.device) / 8
    )
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def loss_of(run: Any, step: int) -> torch.Tensor:
        a, b = run(x).chunk(2, -1)
        turned = a * sin + b * cos
        both = torch.cat([a * cos + b * sin if bug else a * cos - b * sin, turned], -1)  # planted: rotation
        return (both @ x.transpose(1, 2)).float().square().mean()

    return steps(setup, model, loss_of)


# -- without an error ------------------------------------------------------------------------------------


@healthy
def convolutions(setup: Setup, bug: bool) -> Any:
    return _convolutions(setup)


@healthy
def perceptron(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(10)
    model = setup.to(nn.Sequential(nn.Linear(20, 40), nn.SiLU(), nn.LayerNorm(40), nn.Linear(40, 5)))
    x, y = setup.to(torch.randn(48, 20)), setup.to(torch.randn(48, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return steps(setup, model, lambda run, step: F.huber_loss(run(x), y), optimizer=optimizer)


class _Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm, self.out = nn.Linear(32, 96), nn.RMSNorm(32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


@healthy
def fused_attention(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(11)
    model, x = setup.to(_Fused()), setup.to(torch.randn(2, 16, 32))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        made = torch.stack([expert(x) for expert in self.experts], 1)
        picked = made.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
        return x + (picked * weights[..., None]).sum(1)


@healthy
def experts(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(12)
    model, x = setup.to(_Experts()), setup.to(torch.randn(64, 16))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.GRUCell(12, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[0], 16, dtype=x.dtype, device=x.device)
        for t in range(x.shape[1]):
            h = self.inner(x[:, t], h)
        return self.last(h)


@healthy
def recurrent(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(13)
    model, x = setup.to(_Recurrent()), setup.to(torch.randn(8, 4, 12))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Features(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(30, 8), nn.Embedding(50, 8)
        self.last = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.users(users), self.items(items)], -1)).squeeze(-1)


@healthy
def recommender(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(14)
    model = setup.to(_Features())
    users, items = torch.randint(0, 30, (64,)).to(setup.device), torch.randint(0, 50, (64,)).to(setup.device)
    clicks = setup.to((torch.rand(64) > 0.5).float())
    return steps(
        setup, model, lambda run, step: F.binary_cross_entropy_with_logits(run(users, items), clicks)
    )


@healthy
def language_model(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(15)
    model = setup.to(Transformer(layers=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return steps(setup, model, next_token_loss(setup, tokens(setup, 2)), optimizer=optimizer)


@healthy
def large_logits(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(16)
    model, x = setup.to(nn.Linear(16, 16)), setup.to(torch.randn(4, 12, 16))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        y = run(x)
        return ((20 * y @ x.transpose(1, 2)).softmax(-1) @ x).float().square().mean()

    return steps(setup, model, loss_of)


@healthy
def sorted_values(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(17)
    model, x = setup.to(nn.Linear(16, 8)), setup.to(torch.randn(32, 16))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        y = run(x).sort(dim=0).values
        return (y.cumsum(0)[::4] - y.mean(0)).float().abs().mean()

    return steps(setup, model, loss_of)


@healthy
def contrastive(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(18)
    model = setup.to(nn.Linear(16, 8))
    a, b = setup.to(torch.randn(24, 16)), setup.to(torch.randn(24, 16))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        left, right = F.normalize(run(a), dim=-1), F.normalize(run(b), dim=-1)
        return F.cross_entropy((left @ right.t()).float() * 10, torch.arange(24, device=setup.device))

    return steps(setup, model, loss_of)


class _LongMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x)[0][:, -1])


@healthy
def long_memory(setup: Setup, bug: bool) -> Any:
    """The operator of an LSTM leaves bytes for its backward, which are other ones in another dtype."""
    torch.manual_seed(16)
    model, x = setup.to(_LongMemory()), setup.to(torch.randn(3, 6, 8))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())
