"""Layers, losses and loops that one program computes in one way and the other in another."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import drawn, heads, pair, seeded, train
from .small_model import data, loss_of, plain, small_model

_ROWS, _LENGTH, _WIDTH, _HEADS = 2, 12, 32, 4
_SIZE = _WIDTH // _HEADS
_BF16 = torch.bfloat16


def _decoded(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """A block with rotary positions: all tokens at once, in chunks, or one by one, with a cache."""
    x = drawn(_ROWS, _LENGTH, _WIDTH, dtype=dtype)
    weights = [(drawn(_WIDTH, _WIDTH, seed=30 + i) / 5).to(dtype) for i in range(4)]
    angles = torch.arange(_LENGTH)[:, None] * 100.0 ** -(torch.arange(_SIZE // 2) / (_SIZE / 2))
    sin, cos = angles.sin(), angles.cos()

    def turned(each: torch.Tensor, start: int) -> torch.Tensor:
        a, b = each.float().chunk(2, -1)
        stop = start + each.shape[-2]
        s, c = sin[start:stop], cos[start:stop]
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(each.dtype)

    length = {"whole": _LENGTH, "chunks": 4, "steps": 1}[how]
    keys, values, made = [], [], []
    for start in range(0, _LENGTH, length):
        part = F.layer_norm(x[:, start : start + length], (_WIDTH,))
        q, k, v = (heads(part @ w) for w in weights[:3])
        keys.append(turned(k, start))
        values.append(v)
        mask = torch.arange(start + length) <= torch.arange(start, start + length)[:, None]
        mixed = F.scaled_dot_product_attention(
            turned(q, start), torch.cat(keys, 2), torch.cat(values, 2), attn_mask=mask
        )
        made.append(x[:, start : start + length] + mixed.transpose(1, 2).flatten(2) @ weights[3])
    return [torch.cat(made, 1)] if length > 1 else made


pair("decoding with rotary positions", partial(_decoded, "whole"), partial(_decoded, "steps"))
pair("a prefill in chunks", partial(_decoded, "whole"), partial(_decoded, "chunks"))
pair("decoding in bfloat16", partial(_decoded, "whole"), partial(_decoded, "steps", _BF16))
pair("a prefill in chunks in bfloat16", partial(_decoded, "whole"), partial(_decoded, "chunks", _BF16))


def _loss(how: str, dtype: torch.dtype = torch.float32) -> Any:
    def found(model: nn.Module) -> torch.Tensor:
        x, y = data(next(model.parameters()).dtype)
        if how == "token by token":
            rows = zip(x, y, strict=True)
            return torch.stack([F.cross_entropy(model(a[None]).float(), b[None]) for a, b in rows]).mean()
        if how == "chunks":
            parts = [model(a).float() for a in x.chunk(4)]
            pairs = zip(parts, y.chunk(4), strict=True)
            return sum(F.cross_entropy(p, b, reduction="sum") for p, b in pairs) / len(y)
        logits = model(x).float()
        if how == "by hand":
            shifted = logits - logits.amax(-1, keepdim=True)
            return (shifted.exp().sum(-1).log() - shifted.gather(-1, y[:, None])[:, 0]).mean()
        if how == "chances":
            return -(logits.softmax(-1).clamp_min(1e-9).log() * F.one_hot(y, 10)).sum() / len(y)
        if how == "smooth":
            return F.cross_entropy(logits, y, label_smoothing=0.1)
        if how == "smooth by hand":
            logs = logits.log_softmax(-1)
            return (0.9 * F.nll_loss(logs, y, reduction="none") - 0.1 * logs.mean(-1)).mean()
        return F.cross_entropy(logits, y)

    return train(small_model().to(dtype), found)


for _how in ("by hand", "chances", "chunks", "token by token"):
    pair(f"a loss, {_how}", partial(_loss, ""), partial(_loss, _how))
pair("a smooth loss by hand", partial(_loss, "smooth"), partial(_loss, "smooth by hand"))
pair("a smooth loss by hand in bfloat16", partial(_loss, "smooth"), partial(_loss, "smooth by hand", _BF16))
pair("a loss in chunks in bfloat16", partial(_loss, ""), partial(_loss, "chunks", _BF16))


def _convolved(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """A causal convolution of each channel, as in Mamba."""
    x = drawn(2, 16, 20, dtype=dtype)
    weight = (drawn(16, 4, seed=40) / 2).to(dtype).requires_grad_()
    if how == "layer":
        y = F.conv1d(F.pad(x, (3, 0)), weight[:, None], groups=16)
    elif how == "windows":
        y = (F.pad(x, (3, 0)).unfold(-1, 4, 1) * weight[:, None]).sum(-1)
    else:
        padded = F.pad(x, (3, 0))
        y = padded[..., :-3] * weight[:, 0, None]
        for i in range(1, 4):
            y = y + padded[..., i : i + 20] * weight[:, i, None]
    F.silu(y).float().square().mean().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    return [y.detach()]


for _how in ("windows", "shifts"):
    pair(f"a causal convolution, {_how}", partial(_convolved, "layer"), partial(_convolved, _how))
    pair(f"a causal convolution, beside {_how}", partial(_convolved, _how), partial(_convolved, "layer"))
pair("a causal convolution in bfloat16", partial(_convolved, "layer"), partial(_convolved, "windows", _BF16))


def _linear_attention(how: str, dtype: torch.dtype = torch.float32) -> Any:
    q, k, v = (drawn(2, _LENGTH, 8, seed=50 + i, dtype=dtype) for i in range(3))
    weight = (drawn(8, 8, seed=53) / 3).to(dtype).requires_grad_()
    q, k = F.elu(q @ weight) + 1, F.elu(k @ weight) + 1
    if how == "masked":
        y = (q @ k.mT).tril() @ v
    elif how == "sums":
        y = torch.einsum("btd,btde->bte", q, torch.einsum("btd,bte->btde", k, v).cumsum(1))
    else:
        state, made = torch.zeros(2, 8, 8, dtype=dtype), []
        for t in range(_LENGTH):
            state = state + k[:, t, :, None] * v[:, t, None]
            made.append((q[:, t, None] @ state)[:, 0])
        y = torch.stack(made, 1)
    y.float().square().mean().backward()
    with torch.no_grad():
        weight -= 0.01 * weight.grad
    return [y.detach()]


pair("linear attention by sums", partial(_linear_attention, "masked"), partial(_linear_attention, "sums"))
pair("linear attention in steps", partial(_linear_attention, "masked"), partial(_linear_attention, "steps"))
pair(
    "linear attention, sums in steps", partial(_linear_attention, "sums"), partial(_linear_attention, "steps")
)
pair(
    "linear attention in bfloat16",
    partial(_linear_attention, "masked"),
    partial(_linear_attention, "masked", _BF16),
)


def _stacked(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Four experts for all tokens: a product for each, one of a batch, or by einsum."""
    x = drawn(10, 16, dtype=dtype)
    weight = (drawn(4, 16, 24, seed=60) / 4).to(dtype).requires_grad_()
    back = (drawn(4, 24, 16, seed=61) / 5).to(dtype).requires_grad_()
    chances = (x @ drawn(16, 4, seed=62).to(dtype)).float().softmax(-1).to(dtype)
    if how == "each":
        made = [F.silu(x @ weight[i]) @ back[i] for i in range(4)]
        y = sum(chances[:, i, None] * made[i] for i in range(4))
    elif how == "batch":
        made = torch.bmm(F.silu(torch.bmm(x.expand(4, -1, -1), weight)), back)
        y = (chances.T[..., None] * made).sum(0)
    else:
        y = torch.einsum(
            "te,ted->td",
            chances,
            torch.einsum("tef,efd->ted", F.silu(torch.einsum("td,edf->tef", x, weight)), back),
        )
    y.float().square().mean().backward()
    with torch.no_grad():
        for each in (weight, back):
            each -= 0.1 * each.grad
    return [y.detach()]


for _first in ("each", "batch", "einsum"):
    for _second in ("each", "batch", "einsum"):
        if _first != _second:
            pair(f"experts, {_second} beside {_first}", partial(_stacked, _first), partial(_stacked, _second))
pair("experts, a batch in bfloat16", partial(_stacked, "each"), partial(_stacked, "batch", _BF16))


def _dropped(how: str, dtype: torch.dtype = torch.float32) -> Any:
    seeded(7)
    model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10)).to(dtype)
    torch.manual_seed(8)
    return train(model, loss_of)


pair("dropout in bfloat16", partial(_dropped, ""), partial(_dropped, "", _BF16))


def _softened(how: str) -> Any:
    """Distillation: the distance of two distributions at a temperature."""
    seeded(9)
    teacher = nn.Linear(24, 10).requires_grad_(False)
    x, _ = data()

    def found(model: nn.Module) -> torch.Tensor:
        logits, target = model(x) / 2.0, (teacher(x) / 2.0).softmax(-1)
        if how == "torch":
            return F.kl_div(logits.log_softmax(-1), target, reduction="batchmean") * 4.0
        return 4.0 * (target * (target.log() - logits.log_softmax(-1))).sum(-1).mean()

    return train(small_model(), found)


pair("a distance of distributions by hand", partial(_softened, "torch"), partial(_softened, "hand"))
pair("a distance of distributions by torch", partial(_softened, "hand"), partial(_softened, "torch"))


def _quantised(dtype: torch.dtype = torch.float32) -> Any:
    """Weights rounded to eight bits, with a gradient that passes by."""
    model = small_model().to(dtype)
    x, y = data(dtype)

    def found(model: nn.Module) -> torch.Tensor:
        first: Any = model[0]
        scale = first.weight.detach().abs().amax(1, keepdim=True) / 127
        rounded = (first.weight / scale).round().clamp(-127, 127) * scale
        weight = first.weight + (rounded - first.weight).detach()
        return F.cross_entropy(model[1:](F.linear(x, weight, first.bias)).float(), y)

    return train(model, found)


pair("rounded weights in bfloat16", _quantised, partial(_quantised, _BF16))
pair("a model compiled by aot_eager", plain, lambda: train(small_model(), _by_backend("aot_eager")))
pair("a model compiled by gcu", plain, lambda: train(small_model(), _by_backend("gcu")))


def _by_backend(backend: str) -> Callable[[nn.Module], torch.Tensor]:
    compiled = torch.compile(loss_of, backend=backend)
    return lambda model: compiled(model)


def _alibi(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Scores with a slope for each head."""
    x = drawn(_ROWS, _LENGTH, _WIDTH, dtype=dtype)
    weight = (drawn(3 * _WIDTH, _WIDTH, seed=70) / 5).to(dtype).requires_grad_()
    q, k, v = (heads(each) for each in F.linear(x, weight).chunk(3, -1))
    slopes = 2.0 ** -torch.arange(1, _HEADS + 1)
    places = torch.arange(_LENGTH)
    far = (places[:, None] - places).clamp_min(0)
    later = places[:, None] < places
    bias = (-slopes[:, None, None] * far).masked_fill(later, -torch.inf).to(dtype)
    if how == "mask":
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    else:
        mixed = ((q @ k.mT) / math.sqrt(_SIZE) + bias).softmax(-1) @ v
    y = mixed.transpose(1, 2).flatten(2)
    y.float().square().mean().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    return [y.detach()]


pair("slopes of heads by hand", partial(_alibi, "mask"), partial(_alibi, "hand"))
pair("slopes of heads in bfloat16", partial(_alibi, "hand"), partial(_alibi, "mask", _BF16))
