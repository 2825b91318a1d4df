"""Training programs of other kinds of layers, each with an error that can be switched on.

They were written after the comparison; the rules that decide which call to blame were then tuned with them.
"""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.training_programs import Program, Setup, steps
from torch import nn
from torch.nn import functional as F

PLANTED: dict[str, Program] = {}


def planted(program: Program) -> Program:
    PLANTED[program.__name__] = program
    return program


class _Grouped(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.first, self.second = nn.Conv2d(3, 12, 3, stride=2), nn.Conv2d(12, 12, 3, groups=3)
        self.last = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(F.group_norm(self.first(x), self.groups))  # planted: group_norm
        x = F.leaky_relu(self.second(x), 0.1)
        return self.last(F.avg_pool2d(x, 2).mean((2, 3)))


@planted
def group_norm(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(20)
    model, x = setup.to(_Grouped(3 if bug else 4)), setup.to(torch.randn(4, 3, 16, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return steps(setup, model, lambda run, step: run(x).float().square().mean(), optimizer=optimizer)


class _Masked(nn.Module):
    """Attention over sequences of different lengths."""

    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.qkv, self.norm = bug, nn.Linear(24, 72), nn.LayerNorm(24)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        places = torch.arange(x.shape[1], device=x.device)
        allowed = places <= lengths[:, None] if self.bug else places < lengths[:, None]  # planted: padding
        scores = (q @ k.transpose(1, 2)) * 24**-0.5
        scores = scores.masked_fill(~allowed[:, None], float("-inf"))  # planted: padding
        return x + scores.softmax(-1) @ v


@planted
def padding(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(21)
    model, x = setup.to(_Masked(bug)), setup.to(torch.randn(3, 10, 24))
    lengths = torch.tensor([10, 7, 4], device=setup.device)
    return steps(setup, model, lambda run, step: run(x, lengths).float().square().mean())


@planted
def ignored(setup: Setup, bug: bool) -> Any:
    """The loss of padded tokens does not count."""
    torch.manual_seed(22)
    model = setup.to(nn.Sequential(nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 20)))
    ids = torch.randint(1, 20, (4, 12)).to(setup.device)
    ids[:, 9:] = 0
    index = -100 if bug else 0

    def loss_of(run: Any, step: int) -> torch.Tensor:
        logits = run(ids)[:, :-1].flatten(0, 1).float()
        return F.cross_entropy(logits, ids[:, 1:].flatten(), ignore_index=index)  # planted: ignored

    return steps(setup, model, loss_of)


class _Gru(nn.Module):
    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.inner, self.hidden = bug, nn.Linear(10, 48), nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], 16)
        for t in range(x.shape[1]):
            (r, z, n), (hr, hz, hn) = self.inner(x[:, t]).chunk(3, -1), self.hidden(h).chunk(3, -1)
            reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
            new = torch.tanh(n + hn) if self.bug else torch.tanh(n + reset * hn)  # planted: reset
            h = (1 - update) * new + update * h
        return h


@planted
def reset(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(23)
    model, x = setup.to(_Gru(bug)), setup.to(torch.randn(6, 4, 10))
    return steps(setup, model, lambda run, step: (run(x).float() - 0.5).abs().mean())


class _Decayed(nn.Module):
    """A sum over the past that forgets."""

    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.rate, self.last = bug, nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rate = F.softplus(self.rate(x))
        total = rate.cumsum(0 if self.bug else 1)  # planted: forgetting
        return self.last(x * torch.exp(-0.1 * total))


@planted
def forgetting(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(24)
    model, x = setup.to(_Decayed(bug)), setup.to(torch.randn(6, 8, 12))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Routed(nn.Module):
    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.router = bug, nn.Linear(16, 4, bias=False)
        self.up, self.down = (
            nn.Parameter(torch.randn(4, 16, 32) / 4),
            nn.Parameter(torch.randn(4, 32, 16) / 6),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).float().softmax(-1).topk(2, -1)
        if not self.bug:
            weights = weights / weights.sum(-1, keepdim=True)  # planted: routing
        gates = torch.zeros(x.shape[0], 4, dtype=weights.dtype, device=x.device)
        gates = gates.scatter(1, chosen, weights).to(x.dtype)  # planted: routing
        hidden = F.gelu(torch.einsum("nd,edh->enh", x, self.up))
        made = torch.einsum("enh,ehd->end", hidden, self.down)
        return x + torch.einsum("ne,end->nd", gates, made)


@planted
def routing(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(25)
    model, x = setup.to(_Routed(bug)), setup.to(torch.randn(40, 16))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


class _Llama(nn.Module):
    """RMSNorm, rotary positions, grouped queries, SwiGLU."""

    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug = bug
        self.embed, self.norm, self.second = nn.Embedding(30, 32), nn.RMSNorm(32), nn.RMSNorm(32)
        self.q, self.kv, self.out = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 32)
        self.gate, self.up, self.down = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 32)

    def turned(self, x: torch.Tensor, first: int) -> torch.Tensor:
        places = torch.arange(first, x.shape[2] + first, device=x.device)  # planted: rotary
        angles = places[:, None] * 100.0 ** (-torch.arange(4, device=x.device) / 4)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)  # planted: rotary

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows, length = ids.shape
        x = self.embed(ids)
        y = self.norm(x)
        q = self.q(y).view(rows, length, 4, 8).transpose(1, 2)
        k, v = self.kv(y).view(rows, length, 2, 1, 8).permute(2, 0, 3, 1, 4)
        k, v = self.turned(k, 1 if self.bug else 0).expand_as(q), v.expand_as(q)
        mixed = F.scaled_dot_product_attention(self.turned(q, 0), k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.second(x)
        return (x + self.down(F.silu(self.gate(y)) * self.up(y))) @ self.embed.weight.t()


@planted
def rotary(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(26)
    model, ids = setup.to(_Llama(bug)), torch.randint(0, 30, (2, 12)).to(setup.device)
    return steps(
        setup, model, lambda run, step: F.cross_entropy(run(ids).flatten(0, 1).float(), ids.flatten())
    )


class _Scaled(nn.Module):
    """A residual branch that is dropped at random as a whole."""

    def __init__(self, bug: bool) -> None:
        super().__init__()
        self.bug, self.first, self.last = bug, nn.Linear(20, 40), nn.Linear(40, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = F.dropout(self.last(F.relu(self.first(x))), 0.2)
        keep = torch.bernoulli(torch.full((x.shape[0], 1), 0.75, device=x.device)).to(x.dtype)
        branch = branch * keep if self.bug else branch * keep / 0.75  # planted: branches
        return x + branch  # planted: branches


@planted
def branches(setup: Setup, bug: bool) -> Any:
    torch.manual_seed(27)
    model, x = setup.to(_Scaled(bug)), setup.to(torch.randn(32, 20))
    return steps(setup, model, lambda run, step: run(x).float().square().mean())


@planted
def warmup(setup: Setup, bug: bool) -> Any:
    """AdamW by hand: without the correction of its averages."""
    torch.manual_seed(28)
    model, x = setup.to(nn.Linear(16, 16)), setup.to(torch.randn(32, 16))
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    for step in range(1, 3):
        model(x).float().square().mean().backward()
        with torch.no_grad():
            for p, (m, v) in zip(model.parameters(), state, strict=True):
                m.lerp_(p.grad, 0.1)
                v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                size = v.sqrt() if bug else (v / (1 - 0.99**step)).sqrt()  # planted: warmup
                p.mul_(1 - 1e-4).addcdiv_(m / (1 - 0.9**step), size + 1e-3, value=-1e-2)  # planted: warmup
                p.grad = None
    return [p.detach() for p in model.parameters()]


@planted
def limits(setup: Setup, bug: bool) -> Any:
    """Gradients of two parts, clipped by one norm."""
    torch.manual_seed(29)
    model = setup.to(nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 8)))
    x = setup.to(torch.randn(2, 24, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(2):
        for part in x:
            ((model(part).float() - 1).square().mean() / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5 if bug else 0.25)  # planted: limits
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


@planted
def variance(setup: Setup, bug: bool) -> Any:
    """A layer norm by hand, with the variance of a sample."""
    torch.manual_seed(30)
    model, x = setup.to(nn.Linear(10, 12)), setup.to(torch.randn(32, 10))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        y = run(x).float()
        spread = y.var(-1, keepdim=True, correction=1 if bug else 0)  # planted: variance
        y = (y - y.mean(-1, keepdim=True)) * torch.rsqrt(spread + 1e-5)
        return (y[:, :4].pow(3).sum(-1) - 1).abs().mean()

    return steps(setup, model, loss_of)


@planted
def weighting(setup: Setup, bug: bool) -> Any:
    """A mean over tokens that count."""
    torch.manual_seed(31)
    model, x = setup.to(nn.Linear(12, 6)), setup.to(torch.randn(4, 9, 12))
    wanted, counts = torch.randint(0, 6, (4, 9)).to(setup.device), (torch.rand(4, 9) > 0.4).to(setup.device)

    def loss_of(run: Any, step: int) -> torch.Tensor:
        losses = F.cross_entropy(run(x).float().transpose(1, 2), wanted, reduction="none") * counts
        return losses.mean() if bug else losses.sum() / counts.sum()  # planted: weighting

    return steps(setup, model, loss_of)


@planted
def shifted(setup: Setup, bug: bool) -> Any:
    """A causal convolution that looks one step ahead."""
    torch.manual_seed(32)
    model, x = setup.to(nn.Conv1d(8, 8, 3)), setup.to(torch.randn(4, 8, 20))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        wide = F.pad(x, (1, 1) if bug else (2, 0))  # planted: shifted
        return (run(wide) * x).float().square().mean()  # planted: shifted

    return steps(setup, model, loss_of)
