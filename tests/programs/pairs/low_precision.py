"""Training programs in bfloat16, with errors, beside the same in float32."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import pair, seeded

_ROWS, _LENGTH, _WIDTH, _HEADS, _TOKENS = 3, 16, 32, 4, 40
_SIZE = _WIDTH // _HEADS


def _ids(seed: int = 2) -> torch.Tensor:
    return torch.randint(1, _TOKENS, (_ROWS, _LENGTH + 1), generator=torch.Generator().manual_seed(seed))


class _Norm(nn.Module):
    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(_WIDTH)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight  # wrong: stale input


class _Llama(nn.Module):
    """One block with groups of heads, rotary positions, a window and a gate."""

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error
        self.tokens, self.norm = nn.Embedding(_TOKENS, _WIDTH), _Norm()
        self.norm2, self.norm3 = _Norm(), _Norm()
        self.q, self.kv = nn.Linear(_WIDTH, _WIDTH, bias=False), nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.o, self.head = nn.Linear(_WIDTH, _WIDTH, bias=False), nn.Linear(_WIDTH, _TOKENS, bias=False)
        self.gate, self.up = nn.Linear(_WIDTH, 64, bias=False), nn.Linear(_WIDTH, 64, bias=False)
        self.down = nn.Linear(64, _WIDTH, bias=False)
        with torch.no_grad():
            self.tokens.weight.mul_(2.0)
            self.q.weight.mul_(3.0)
            self.kv.weight.mul_(3.0)

    def _turned(self, x: torch.Tensor, is_key: bool = False) -> torch.Tensor:
        base = 100.0 if self.error == "base" and is_key else 1000.0
        places = torch.arange(_LENGTH, device=x.device)
        if self.error == "late" and is_key:
            places = places - 1  # wrong: late
        angles = places[:, None] / base ** (torch.arange(_SIZE // 2) * 2 / _SIZE)  # wrong: base, late
        a, b = x.chunk(2, -1)
        sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)  # wrong: base, late
        other = -1 if self.error == "turn" else 1
        return torch.cat([a * cos - b * sin, b * cos + other * a * sin], -1)  # wrong: base, late, turn

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        h = self.norm(x)
        q = self.q(h).view(_ROWS, _LENGTH, _HEADS, _SIZE).transpose(1, 2)
        k, v = self.kv(h).view(_ROWS, _LENGTH, 2, 2, _SIZE).unbind(2)
        k, v = (each.transpose(1, 2).repeat_interleave(2, 1) for each in (k, v))
        q, k = self._turned(q), self._turned(k, is_key=True)
        places = torch.arange(_LENGTH)
        far = places[:, None] - places
        window = 7 if self.error == "window" else 6
        allowed = (far >= 0) & (far < window)  # wrong: window
        if self.error == "scale":
            scores = q @ k.mT / _SIZE  # wrong: scale
        else:
            scores = q @ k.mT * _SIZE**-0.5
        scores = scores.masked_fill(~allowed, -torch.inf)  # wrong: window
        mixed = scores.float().softmax(-1).to(v.dtype) @ v
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        h = self.norm2(h if self.error == "stale input" else x)
        gate = self.gate(h)
        gate = F.gelu(gate) if self.error == "gate" else F.silu(gate)  # wrong: gate
        x = x + self.down(gate * self.up(h))
        if self.error == "residual":
            x = x + h  # wrong: residual
        logits = self.head(self.norm3(x))
        if self.error == "temperature":
            logits = logits * 0.9  # wrong: temperature
        return logits


def _adam_step(
    weights: list[torch.Tensor], moments: list[tuple[torch.Tensor, torch.Tensor]], step: int, error: str
) -> None:
    """AdamW by hand, in float32."""
    with torch.no_grad():
        for p, (m, v) in zip(weights, moments, strict=True):
            grad = p.grad.float()
            m.mul_(0.9).add_(grad, alpha=0.1)
            kept = 0.99 if error == "beta" else 0.95
            v.mul_(kept).addcmul_(grad, grad, value=1 - kept)  # wrong: beta
            count = step + 1 if error == "correction" else step
            bias, bias2 = 1 - 0.9**count, 1 - 0.95**count
            root = (v / bias2).sqrt()  # wrong: correction
            if error == "root":
                root = v / bias2  # wrong: root
            eps = 1e-2 if error == "epsilon" else 1e-8
            update = m / bias / (root + eps)  # wrong: correction, root, epsilon
            wide = p.float()
            new = wide - 1e-2 * update
            if error != "decay":
                new = new - 1e-2 * 4.0 * wide  # wrong: decay
            p.copy_(new)  # wrong: decay


def _language(dtype: torch.dtype, error: str = "") -> Any:
    seeded(11)
    model = _Llama(error).to(dtype)
    weights = [model.q.weight, model.up.weight, model.norm2.weight]  # the others stay
    for p in {*model.parameters()} - {*weights}:
        p.requires_grad_(False)
    moments = [(torch.zeros(p.shape), torch.zeros(p.shape)) for p in weights]
    ids, losses = _ids(), []
    keep = torch.arange(_LENGTH) < torch.tensor([16, 11, 7])[:, None]
    for step in range(1, 3):
        given = ids[:, :-1]
        target = ids[:, :-1] if error == "same token" else ids[:, 1:]  # wrong: same token
        logits = model(given).float()
        each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")  # wrong: same token
        each = each.view(keep.shape) * keep
        total = keep.numel() if error == "padding counted" else keep.sum()
        loss = each.sum() / total  # wrong: padding counted
        size = logits.logsumexp(-1).square().mean()
        if error == "detached":
            size = size.detach()  # wrong: detached
        loss = loss + 0.05 * size  # wrong: detached
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in weights])  # wrong: gradients kept
        if error != "clip":
            for p in weights:
                p.grad.mul_((0.1 / (norm + 1e-6)).clamp(max=1.0))
        _adam_step(weights, moments, step, error)
        if error != "gradients kept":
            model.zero_grad()
        losses.append(loss.detach())
    return losses


_LANGUAGE = (
    "base", "late", "turn", "window", "scale", "stale input", "gate", "residual", "temperature", "beta",
    "correction", "root", "epsilon", "decay", "same token", "padding counted", "detached", "gradients kept",
)  # fmt: skip
pair("a block in bfloat16", partial(_language, torch.float32), partial(_language, torch.bfloat16), *_LANGUAGE)
pair("a block in float16", partial(_language, torch.float32), partial(_language, torch.float16))


class _OwnNorm(torch.autograd.Function):
    """A norm and its backward pass by hand."""

    error = ""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight, scale = ctx.saved_tensors
        normed = x.float() * scale
        given = grad.float()
        for_weight = (given * normed).sum(0)
        if _OwnNorm.error != "unweighted":
            given = given * weight.float()
        inner = (given * normed).mean(-1, keepdim=True)  # wrong: unweighted
        if _OwnNorm.error == "term":
            return (given * scale).to(x.dtype), for_weight.to(x.dtype)  # wrong: term, unweighted
        made = (given - normed * inner) * scale  # wrong: unweighted
        return made.to(x.dtype), for_weight.to(x.dtype)


def _classified(dtype: torch.dtype, error: str = "") -> Any:
    """A classifier with dropout, an average of its weights, a teacher and a balanced router."""
    seeded(12)
    _OwnNorm.error = error
    first, second = nn.Linear(24, _WIDTH).to(dtype), nn.Linear(_WIDTH, 10).to(dtype)
    router = nn.Linear(_WIDTH, 4).to(dtype)
    experts = [nn.Linear(_WIDTH, _WIDTH, bias=False).to(dtype) for _ in range(4)]
    scale = (torch.rand(_WIDTH) + 0.5).to(dtype).requires_grad_()
    model = nn.ModuleList([first, second, router, *experts])
    average = copy.deepcopy(model)
    drawn = torch.Generator().manual_seed(13)
    x = torch.randn(48, 24, generator=drawn).to(dtype)
    y = torch.randint(0, 10, (48,), generator=drawn)
    weights = [*model.parameters(), scale]
    momentum = [torch.zeros_like(p) for p in weights]
    torch.manual_seed(14)
    losses = []
    for _ in range(3):
        h = _OwnNorm.apply(F.relu(first(x)), scale)
        mask = torch.rand(h.shape).lt(0.8).to(dtype)
        h = h * mask / (0.2 if error == "dropped" else 0.8)  # wrong: dropped
        chances = router(h).float().softmax(-1)
        best, which = chances.topk(2, -1)
        if error != "not one":
            best = best / best.sum(-1, keepdim=True)  # wrong: not one
        if error == "swapped":
            which = which.flip(-1)  # wrong: swapped
        mixed = torch.zeros_like(h)
        for i, expert in enumerate(experts):
            share = (best * (which == i)).sum(-1, keepdim=True).to(dtype)  # wrong: not one, swapped
            weight = expert.weight if error == "transposed" and i == 2 else expert.weight.T
            mixed = mixed + share * (h @ weight)  # wrong: transposed
        logits = second(h + mixed).float()
        smoothing = 0.2 if error == "smoothing" else 0.1
        loss = F.cross_entropy(logits, y, label_smoothing=smoothing)  # wrong: smoothing
        counts = F.one_hot(which, 4).sum(1).float().mean(0)
        balance = 4 * (counts * chances.mean(0)).sum()
        loss = loss + (0.1 if error == "balance" else 0.01) * balance  # wrong: balance
        loss.backward()
        with torch.no_grad():
            for p, m in zip(weights, momentum, strict=True):
                if error == "dampened":
                    m.mul_(0.9).add_(p.grad, alpha=0.5)  # wrong: dampened
                else:
                    m.mul_(0.9).add_(p.grad)
                step_of = m if error == "plain momentum" else p.grad + 0.9 * m  # wrong: plain momentum
                p.sub_(0.05 * step_of)  # wrong: plain momentum
                p.grad = None
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                if error == "average":
                    a.mul_(0.9).add_(p, alpha=0.2)  # wrong: average
                else:
                    a.mul_(0.9).add_(p, alpha=0.1)
        losses.append(loss.detach())
    return losses


_CLASSIFIED = (
    "unweighted", "term", "dropped", "not one", "swapped", "transposed", "smoothing", "balance",
    "dampened", "plain momentum", "average",
)  # fmt: skip
pair(
    "experts in bfloat16, by hand", partial(_classified, torch.float32),
    partial(_classified, torch.bfloat16), *_CLASSIFIED,
)  # fmt: skip
