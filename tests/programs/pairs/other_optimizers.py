"""Optimizers and loops that are no part of torch, or that torch has too: Lion, Muon, weight norm, groups."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from .registry import pair, seeded, train
from .small_model import data, loss_of, small_model

_BF16 = torch.bfloat16


def _normed(how: str) -> Any:
    """A weight by its length and its direction."""
    seeded()
    layer = nn.Linear(24, 16)
    x, _ = data()
    if how == "torch":
        layer = parametrizations.weight_norm(layer)
        return train(layer, lambda model: model(x).square().mean())
    size, direction = layer.weight.detach().norm(dim=1, keepdim=True), layer.weight.detach().clone()
    weights = [layer.bias, size.requires_grad_(), direction.requires_grad_()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in range(2):
        made = size * direction / direction.norm(dim=1, keepdim=True)
        loss = F.linear(x, made, layer.bias).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [loss.detach()]


pair("weight norm by hand", partial(_normed, "torch"), partial(_normed, "hand"))


def _lion(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """An optimizer that takes signs, of which rounding changes a few."""
    model = small_model().to(dtype)
    weights = [*model.parameters()]
    moments = [torch.zeros_like(p) for p in weights]
    for _ in range(3):
        loss = loss_of(model)
        loss.backward()
        grads = [p.grad for p in weights]
        with torch.no_grad():
            if how == "lists":
                steps = torch._foreach_lerp(moments, grads, 0.1)
                torch._foreach_sign_(steps)
                torch._foreach_mul_(weights, 1 - 1e-3 * 0.1)
                torch._foreach_add_(weights, steps, alpha=-1e-3)
                torch._foreach_lerp_(moments, grads, 0.01)
            else:
                for p, m, g in zip(weights, moments, grads, strict=True):
                    p.mul_(1 - 1e-3 * 0.1).sub_((m * 0.9 + g * 0.1).sign(), alpha=1e-3)
                    m.mul_(0.99).add_(g, alpha=0.01)
        model.zero_grad()
    return [loss.detach()]


pair("Lion with lists", partial(_lion, "loop"), partial(_lion, "lists"))
pair("Lion in bfloat16", partial(_lion, "loop"), partial(_lion, "loop", _BF16))


def _orthogonal(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Muon: a momentum made orthogonal by five steps of Newton and Schulz."""
    seeded(5)
    layer = nn.Linear(24, 16, bias=False)
    x, _ = data()
    if how == "torch":
        optimizer = torch.optim.Muon(layer.parameters(), lr=0.02, weight_decay=0.0)
        return train(layer, lambda model: model(x).square().mean(), optimizer=lambda _: optimizer)
    momentum = torch.zeros_like(layer.weight)
    for _ in range(2):
        loss = layer(x).square().mean()
        loss.backward()
        with torch.no_grad():
            momentum.lerp_(layer.weight.grad, 0.05)
            o = layer.weight.grad.lerp(momentum, 0.95).to(dtype)
            o = o / o.norm().clamp_min(1e-7)
            for _ in range(5):
                a = o @ o.T
                o = 3.4445 * o + (-4.775 * a + 2.0315 * a @ a) @ o
            layer.weight.sub_(o.float(), alpha=0.02)
        layer.zero_grad()
    return [loss.detach()]


pair("Muon in bfloat16", partial(_orthogonal, "hand"), partial(_orthogonal, "hand", _BF16))
pair("Muon by hand", partial(_orthogonal, "torch"), partial(_orthogonal, "hand", _BF16))


def _groups(lists: bool, dtype: torch.dtype = torch.float32) -> Any:
    """Two groups of weights, a schedule, clipped gradients and parts of a batch."""
    model = small_model().to(dtype)
    large = [p for p in model.parameters() if p.dim() > 1]
    small = [p for p in model.parameters() if p.dim() < 2]
    groups: Any = [{"params": large, "weight_decay": 0.1}, {"params": small, "weight_decay": 0.0, "lr": 5e-3}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, foreach=lists)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    for _ in range(3):
        loss = loss_of(model)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.2, foreach=lists)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return [loss.detach()]


pair("groups of weights with foreach", partial(_groups, False), partial(_groups, True))
pair("groups of weights in bfloat16", partial(_groups, False), partial(_groups, False, _BF16))
pair("groups of weights with foreach in bfloat16", partial(_groups, False), partial(_groups, True, _BF16))


def _accumulated(parts: int, dtype: torch.dtype = torch.float32) -> Any:
    model = small_model().to(dtype)
    x, y = data(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            loss = F.cross_entropy(model(a).float(), b) / parts
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


pair("gradients of four parts", partial(_accumulated, 1), partial(_accumulated, 4))
pair("gradients of two parts in bfloat16", partial(_accumulated, 1), partial(_accumulated, 2, _BF16))
