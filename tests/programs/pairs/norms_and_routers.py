"""Norms of groups, channels, batches and heads, and routers that send tokens to experts."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import drawn, heads, pair

_BF16, _FP16 = torch.bfloat16, torch.float16


def _step(weights: list[torch.Tensor], y: torch.Tensor) -> list[torch.Tensor]:
    """One step on the mean of the squares of a result."""
    y.float().square().mean().backward()
    with torch.no_grad():
        for each in weights:
            each -= 0.1 * each.grad
    return [y.detach()]


def _grouped(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A group norm after a convolution."""
    x = drawn(3, 4, 6, 6, dtype=dtype)
    kernel = (drawn(8, 4, 3, 3, seed=80) / 4).to(dtype).requires_grad_()
    weight = (drawn(8, seed=81) + 1).to(dtype).requires_grad_()
    bias = drawn(8, seed=82).to(dtype).requires_grad_()
    y = F.conv2d(x, kernel, padding=1)
    if how == "torch":
        y = F.group_norm(y, 4, weight, bias)
    else:
        parts = y.float().unflatten(1, (2 if error == "groups" else 4, -1))  # wrong: groups
        mean = parts.mean((2, 3, 4), keepdim=True)  # wrong: groups
        power = parts.var((2, 3, 4), keepdim=True, unbiased=error == "unbiased")  # wrong: groups, unbiased
        parts = (parts - mean) * torch.rsqrt(power + 1e-5)  # wrong: groups, unbiased
        y = parts.flatten(1, 2).to(dtype) * weight[:, None, None] + bias[:, None, None]
    return _step([kernel, weight, bias], F.silu(y))


pair("group norm by hand", partial(_grouped, "torch"), partial(_grouped, "hand", torch.float32))
pair("group norm as the other", partial(_grouped, "hand"), partial(_grouped, "torch"))
pair(
    "group norm by hand in bfloat16", partial(_grouped, "hand"),
    partial(_grouped, "hand", _BF16), "groups", "unbiased",
)  # fmt: skip
pair("group norm of torch, by hand in bfloat16", partial(_grouped, "torch"), partial(_grouped, "hand", _BF16))
pair("group norm in float16", partial(_grouped, "torch"), partial(_grouped, "torch", _FP16))


def _of_each_image(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Instance norm, as one operator, as a group norm of single channels, or by hand."""
    x = drawn(3, 6, 5, 5, dtype=dtype)
    kernel = (drawn(6, 6, 1, 1, seed=83) / 2).to(dtype).requires_grad_()
    y = F.conv2d(x, kernel)
    if how == "instance":
        y = F.instance_norm(y)
    elif how == "group":
        y = F.group_norm(y, 6)
    else:
        wide = y.float().flatten(2)
        centred = wide - wide.mean(-1, keepdim=True)
        y = (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()).view(y.shape).to(dtype)
    return _step([kernel], F.gelu(y))


for _how in ("group", "hand"):
    pair(f"instance norm, {_how}", partial(_of_each_image, "instance"), partial(_of_each_image, _how))
pair("instance norm in bfloat16", partial(_of_each_image, "instance"), partial(_of_each_image, "hand", _BF16))


def _normed_heads(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Attention whose queries and keys have length one, with a learnt temperature for each head."""
    x = drawn(2, 10, 32, dtype=dtype)
    weight = (drawn(96, 32, seed=84) / 5).to(dtype).requires_grad_()
    heat = (drawn(4, seed=85).abs() + 3).to(dtype).requires_grad_()
    q, k, v = (heads(each) for each in F.linear(x, weight).chunk(3, -1))
    if how == "torch":
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    else:
        q = q * torch.rsqrt(q.float().square().sum(-1, keepdim=True).clamp_min(1e-12)).to(dtype)
        if error != "keys as they are":
            k = k * torch.rsqrt(k.float().square().sum(-1, keepdim=True).clamp_min(1e-12)).to(dtype)
    scores = q @ k.mT * heat[:, None, None]  # wrong: keys as they are
    later = torch.ones(10, 10, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
    return _step([weight, heat], mixed.transpose(1, 2).flatten(2))


pair("normed heads by hand", partial(_normed_heads, "torch"), partial(_normed_heads, "hand"))
pair("normed heads by torch", partial(_normed_heads, "hand"), partial(_normed_heads, "torch"))
pair(
    "normed heads in bfloat16", partial(_normed_heads, "hand"),
    partial(_normed_heads, "hand", _BF16), "keys as they are",
)  # fmt: skip


def _of_a_batch(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Two steps with a batch norm and its running statistics, and then an evaluation."""
    weight = (drawn(16, 12, seed=86) / 3).to(dtype).requires_grad_()
    mean, power = torch.zeros(16, dtype=dtype), torch.ones(16, dtype=dtype)
    for step in range(2):
        y = drawn(20, 12, seed=87 + step, dtype=dtype) @ weight.T
        if how == "torch":
            y = F.batch_norm(y, mean, power, training=True)
        else:
            now, spread = y.mean(0), y.var(0, unbiased=False)
            y = (y - now) * torch.rsqrt(spread + 1e-5)
            with torch.no_grad():
                mean.lerp_(now, 0.01 if error == "slow" else 0.1)  # wrong: slow
                power.lerp_(spread if error == "biased" else spread * 20 / 19, 0.1)  # wrong: biased
        F.relu(y).square().mean().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad = None
    with torch.no_grad():
        y = drawn(4, 12, seed=90, dtype=dtype) @ weight.T
        return [F.batch_norm(y, mean, power)]  # wrong: slow, biased


pair("batch norm by hand", partial(_of_a_batch, "torch"), partial(_of_a_batch, "hand"))
pair("batch norm by torch", partial(_of_a_batch, "hand"), partial(_of_a_batch, "torch"))
pair(
    "batch norm by hand in both", partial(_of_a_batch, "hand"),
    lambda error: _of_a_batch("hand", error=error), "slow", "biased",
)  # fmt: skip


def _routed(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Experts chosen by sigmoids with a bias that balances them; the bias has no part in the weights."""
    tokens, count, width = 24, 6, 16
    x = drawn(tokens, width, dtype=dtype)
    router = (drawn(count, width, seed=91) / 3).to(dtype).requires_grad_()
    up = (drawn(count, width, 20, seed=92) / 4).to(dtype).requires_grad_()
    down = (drawn(count, 20, width, seed=93) / 4).to(dtype).requires_grad_()
    bias = drawn(count, seed=94) / 4
    scores = (x @ router.T).float().sigmoid()
    which = (scores + bias).topk(2, -1).indices
    source = scores + bias if error == "biased weights" else scores
    best = source.gather(-1, which)  # wrong: biased weights
    scale = 1.0 if error == "unscaled" else 2.5
    best = best / (best.sum(-1, keepdim=True) + 1e-20) * scale  # wrong: unscaled
    y = torch.zeros_like(x)
    if how == "sorted":
        flat, order = which.flatten().sort(stable=True)
        places = order // 2
        parts = x[places].split(torch.bincount(flat, minlength=count).tolist())
        made = torch.cat([F.silu(part @ up[i]) @ down[i] for i, part in enumerate(parts)])
        y = y.index_add(0, places, made * best.flatten()[order, None].to(dtype))
    else:
        for i in range(count):
            share = (best * (which == i)).sum(-1, keepdim=True).to(dtype)  # wrong: unscaled
            y = y + share * (F.silu(x @ up[i]) @ down[i])
    return _step([router, up, down], x + y)


pair("sigmoid router, sorted tokens", partial(_routed, "all"), partial(_routed, "sorted"))
pair("sigmoid router, all tokens", partial(_routed, "sorted"), partial(_routed, "all"))
pair(
    "sigmoid router in bfloat16", partial(_routed, "all"),
    partial(_routed, "all", _BF16), "biased weights", "unscaled",
)  # fmt: skip
pair("sigmoid router, sorted in bfloat16", partial(_routed, "sorted"), partial(_routed, "sorted", _BF16))


def _choosing(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Each expert chooses its tokens."""
    x = drawn(16, 12, dtype=dtype)
    router, experts = nn.Linear(12, 4, bias=False), (drawn(4, 12, 12, seed=96) / 3).to(dtype).requires_grad_()
    with torch.no_grad():
        router.weight.copy_(drawn(4, 12, seed=95) / 3)
    router.to(dtype)
    best, which = router(x).float().softmax(-1).T.topk(5, -1)
    if how == "one hot":
        spread = F.one_hot(which, 16).to(dtype)
        made = torch.bmm(spread @ x, experts) * best[..., None].to(dtype)
        y = torch.einsum("ekt,ekd->td", spread, made)
    else:
        made = torch.bmm(x[which], experts) * best[..., None].to(dtype)
        y = torch.zeros_like(x).index_add(0, which.flatten(), made.flatten(0, 1))
    return _step([*router.parameters(), experts], y)


pair("experts that choose, by one hot", partial(_choosing, "index"), partial(_choosing, "one hot"))
pair("experts that choose, by index", partial(_choosing, "one hot"), partial(_choosing, "index"))
pair("experts that choose in bfloat16", partial(_choosing, "index"), partial(_choosing, "index", _BF16))
