"""Small training programs in any dtype, eager or compiled, each with one error that can be switched on.

The line of an error ends with `# planted`, or several do where the error is a difference between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Setup:
    """How a program is run."""

    dtype: torch.dtype = torch.float32
    compiled: bool = False
    autocast: bool = False  # bfloat16, with weights in float32
    device: str = "cpu"

    def ready(self, model: Any) -> Any:
        return torch.compile(model) if self.compiled else model

    def casting(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, torch.bfloat16) if self.autocast else nullcontext()

    def to(self, value: Any) -> Any:
        return value.to(self.device, self.dtype)


Program = Callable[[Setup, bool], Any]
PLANTED: dict[str, Program] = {}


def planted(program: Program) -> Program:
    PLANTED[program.__name__] = program
    return program


def steps(
    setup: Setup, model: nn.Module, loss_of: Callable[[Any, int], torch.Tensor], count: int = 2,
    optimizer: torch.optim.Optimizer | None = None,
) -> list[float]:  # fmt: skip
    """A few steps of training; what it returns are the losses."""
    chosen = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run, losses = setup.ready(model), []
    for step in range(count):
        with setup.casting():
            loss = loss_of(run, step)
        loss.backward()
        chosen.step()
        chosen.zero_grad()
        losses.append(loss.item())
    return losses


def tokens(setup: Setup, rows: int = 4, length: int = 16, size: int = 40) -> torch.Tensor:
    return torch.randint(0, size, (rows, length)).to(setup.device)


def next_token_loss(setup: Setup, ids: torch.Tensor) -> Callable[[Any, int], torch.Tensor]:
    return lambda run, step: F.cross_entropy(run(ids)[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, bug: str = "") -> None:
        super().__init__()
        self.heads, self.bug = heads, bug
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        size = width // self.heads
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        if self.bug == "swapped":
            q, k = k, q  # planted: swapped
        scores = q @ k.transpose(-1, -2)  # planted: swapped
        scale = 1 / size if self.bug == "scale" else 1 / math.sqrt(size)
        scores = scores * scale  # planted: scale
        first = 0 if self.bug == "mask" else 1
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(first)  # planted: mask
        if self.bug == "mask":
            mask = mask & ~torch.eye(length, dtype=torch.bool, device=x.device).roll(1, 0)  # planted: mask
        scores = scores.masked_fill(mask, -1e4)  # planted: mask
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5, dim: int = -1) -> None:
        super().__init__()
        self.weight, self.eps, self.dim = nn.Parameter(torch.ones(width)), eps, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        power = x.pow(2).mean(self.dim, keepdim=True)  # planted: dim
        return x * torch.rsqrt(power + self.eps) * self.weight  # planted: eps


class Transformer(nn.Module):
    def __init__(
        self, width: int = 32, layers: int = 2, bug: str = "", eps: float = 1e-5, dim: int = -1
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.places = nn.Embedding(16, width)
        self.bug = bug
        self.attention = nn.ModuleList(Attention(width, 4, bug if i else "") for i in range(layers))
        self.norms = nn.ModuleList(
            Norm(width, eps if i else 1e-5, dim if i else -1) for i in range(2 * layers)
        )
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.head = nn.Linear(width, 40)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        if self.bug == "position":
            places = (places + 1).clamp(max=15)  # planted: position
        x = self.embed(ids) + self.places(places)  # planted: position
        for i, attention in enumerate(self.attention):
            x = x + attention(self.norms[2 * i](x))
            x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x))))
        return self.head(x)


def _transformer(setup: Setup, **kwargs: Any) -> list[float]:
    torch.manual_seed(0)
    model = setup.to(Transformer(**kwargs))
    return steps(setup, model, next_token_loss(setup, tokens(setup)))


@planted
def scale(setup: Setup, bug: bool) -> Any:
    return _transformer(setup, bug="scale" if bug else "")


@planted
def swapped(setup: Setup, bug: bool) -> Any:
    return _transformer(setup, bug="swapped" if bug else "")


@planted
def mask(setup: Setup, bug: bool) -> Any:
    return _transformer(setup, bug="mask" if bug else "")


@planted
def position(setup: Setup, bug: bool) -> Any:
    return _transformer(setup, bug="position" if bug else "")


@planted
def eps(setup: Setup, bug: bool) -> Any:
    return _transformer(setup, eps=0.05 if bug else 1e-5)


@planted
def dim(setup: Setup, bug: bool) -> Any:
    return _transformer(setup, dim=1 if bug else -1)


@planted
def cast(setup: Setup, bug: bool) -> Any:
    """Positions above 256 are not numbers of bfloat16."""
    torch.manual_seed(0)
    model = setup.to(nn.Linear(32, 32))
    x = setup.to(torch.randn(2, 300, 32))
    dtype = setup.dtype if bug else torch.float32

    def loss_of(run: Any, step: int) -> torch.Tensor:
        places = torch.arange(300, device=x.device).to(dtype)  # planted: cast
        speed = 10000 ** (-torch.arange(0, 32, device=x.device).float() / 32)
        turned = x * torch.cos(places[:, None] * speed).to(x.dtype)
        return run(turned).float().pow(2).mean()

    return steps(setup, model, loss_of)


class _Running(nn.Module):
    """Whitens by a mean that it updates first."""

    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.inner = bug, nn.Linear(24, 24)
        self.register_buffer("mean", torch.zeros(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.mean.clone()
        self.mean.mul_(0.5).add_(x.detach().mean(0), alpha=0.5)
        used = before if self.bug else self.mean
        return self.inner(x - used)  # planted: stale


@planted
def stale(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model, x = setup.to(_Running(bug)), setup.to(torch.randn(64, 24) + 1)
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Tied(nn.Module):
    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug = bug
        self.first, self.weight = nn.Linear(24, 24), nn.Parameter(torch.randn(24, 24) / 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight if self.bug else self.weight.t()
        return torch.tanh(self.first(x)) @ weight  # planted: transposed


@planted
def transposed(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model, x = setup.to(_Tied(bug)), setup.to(torch.randn(64, 24))
    return steps(setup, model, lambda run, step: (run(x).float() - x.float()).square().mean())


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bug: bool) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bug = bug
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        direct = gradient * s  # planted: gradient
        if ctx.bug:
            return direct, None
        return direct + gradient * x * s * (1 - s), None  # planted: gradient


@planted
def gradient(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model, last = setup.to(nn.Linear(24, 48)), setup.to(nn.Linear(48, 24))
    x = setup.to(torch.randn(64, 24))
    both = nn.ModuleList([model, last])
    return steps(setup, both, lambda run, step: last(_Gate.apply(model(x), bug)).float().square().mean())


class _Branches(nn.Module):
    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug = bug
        self.trunk, self.gate, self.value = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.trunk(x))
        gate = torch.sigmoid(self.gate(x))  # planted: detached
        if self.bug:
            gate = gate.detach()  # planted: detached
        return gate * self.value(x)  # planted: detached


@planted
def detached(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model, x = setup.to(_Branches(bug)), setup.to(torch.randn(64, 24))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Momentum(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[Any], rate: float, beta: float) -> None:
        super().__init__(parameters, {"lr": rate, "beta": beta})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])  # planted: beta
                p.add_(average, alpha=-group["lr"])


@planted
def beta(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model = setup.to(nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)))
    x = setup.to(torch.randn(64, 24))
    optimizer = _Momentum(model.parameters(), 0.1, 0.99 if bug else 0.9)
    return steps(setup, model, lambda run, step: run(x).float().square().mean(), optimizer=optimizer)


class _Dropped(nn.Module):
    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.first, self.last = bug, nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(F.silu(self.first(x)), 0.1)
        if self.bug:
            hidden = hidden / 0.9  # planted: dropout
        return self.last(hidden)  # planted: dropout


@planted
def dropout(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model, x = setup.to(_Dropped(bug)), setup.to(torch.randn(64, 24))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Clamped(nn.Module):
    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit, self.first, self.last = limit, nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ratio = self.first(x).clamp(-self.limit, self.limit)  # planted: clamp
        return self.last(ratio.exp())


@planted
def clamp(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(0)
    model, x = setup.to(_Clamped(0.5 if bug else 1.0)), setup.to(torch.randn(64, 24))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())
