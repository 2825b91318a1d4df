"""Attention in one operator or by hand; queries, keys and values fused or apart, in groups, in blocks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import pair, seeded, train

_ROWS, _LENGTH, _WIDTH, _HEADS = 2, 12, 32, 4
_SIZE = _WIDTH // _HEADS


def _inputs(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(_ROWS, _LENGTH, _WIDTH, generator=torch.Generator().manual_seed(3)).to(dtype)


def _weights(dtype: torch.dtype = torch.float32, shares: int = 1) -> list[torch.Tensor]:
    """Of queries, keys, values and of the output; keys and values may have fewer heads."""
    drawn = torch.Generator().manual_seed(4)
    sizes = [_WIDTH, _WIDTH // shares, _WIDTH // shares, _WIDTH]
    return [(torch.randn(size, _WIDTH, generator=drawn) / 6).to(dtype).requires_grad_() for size in sizes]


def _heads(x: torch.Tensor, count: int = _HEADS) -> torch.Tensor:
    return x.view(_ROWS, _LENGTH, count, -1).transpose(1, 2)


def _joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(_ROWS, _LENGTH, _WIDTH)


def _step(weights: list[torch.Tensor], y: torch.Tensor) -> list[torch.Tensor]:
    y.float().square().mean().backward()
    with torch.no_grad():
        for weight in weights:
            weight -= 0.1 * weight.grad
    return [y.detach()]


def _in_one(dtype: torch.dtype = torch.float32, *, is_causal: bool = True) -> Any:
    x, weights = _inputs(dtype), _weights(dtype)
    q, k, v = (_heads(x @ w.T) for w in weights[:3])
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return _step(weights, _joined(mixed) @ weights[3].T)


def _by_hand(dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    x, weights = _inputs(dtype), _weights(dtype)
    q, k, v = (_heads(x @ w.T) for w in weights[:3])
    scale = 1 / _SIZE if error == "scale" else _SIZE**-0.5
    scores = q @ k.transpose(-1, -2) * scale  # wrong: scale
    if error == "twice":
        scores = scores * _SIZE**-0.5  # wrong: twice
    first = 2 if error == "mask" else 1
    mask = torch.full((_LENGTH, _LENGTH), -torch.inf, dtype=dtype).triu(first)  # wrong: mask
    scores = scores + mask  # wrong: mask
    mixed = scores.softmax(-2 if error == "axis" else -1) @ v  # wrong: axis
    if error == "order":
        return _step(weights, mixed.reshape(_ROWS, _LENGTH, _WIDTH) @ weights[3].T)  # wrong: order
    return _step(weights, _joined(mixed) @ weights[3].T)


_ERRORS = ("scale", "twice", "mask", "axis", "order")
pair("attention by hand", _in_one, _by_hand)
pair("attention by hand in both", _by_hand, lambda error: _by_hand(error=error), *_ERRORS)
pair("attention by hand in bfloat16", _by_hand, lambda error: _by_hand(torch.bfloat16, error), *_ERRORS)
pair("attention in one operator, by hand in bfloat16", _in_one, lambda: _by_hand(torch.bfloat16))
pair("attention in one operator", _by_hand, _in_one)


def _scaled_queries() -> Any:
    """The scale is taken of the queries, in another place."""
    x, weights = _inputs(), _weights()
    q, k, v = (_heads(x @ w.T) for w in weights[:3])
    scores = (q * _SIZE**-0.5) @ k.transpose(-1, -2)
    mask = torch.ones(_LENGTH, _LENGTH, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return _step(weights, _joined(F.softmax(scores, -1, dtype=torch.float32) @ v) @ weights[3].T)


pair("scale of the queries", _by_hand, _scaled_queries)


def _einsum() -> Any:
    x, weights = _inputs(), _weights()
    q, k, v = (
        torch.einsum("bte,hde->bthd", x, w.view(_HEADS, _SIZE, _WIDTH)) for w in weights[:3]
    )  # fmt: skip
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(_SIZE)
    scores = scores.masked_fill(torch.ones(_LENGTH, _LENGTH).triu(1).bool(), -torch.inf)
    mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    out = torch.einsum("bqhd,ehd->bqe", mixed, weights[3].view(_WIDTH, _HEADS, _SIZE))
    return _step(weights, out)


pair("attention by einsum", _by_hand, _einsum)
pair("attention by einsum, beside one operator", _in_one, _einsum)


def _fused_weights(error: str = "") -> Any:
    """Queries, keys and values of one product, with a weight for each or one for all three."""
    x, weights = _inputs(), _weights()
    with torch.no_grad():
        order = weights[:3] if error != "order" else [weights[1], weights[0], weights[2]]
        fused = torch.cat(order).requires_grad_()  # wrong: order
    q, k, v = (_heads(each) for each in (x @ fused.T).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=error != "causal")  # wrong: causal, order
    return _step([fused, weights[3]], _joined(mixed) @ weights[3].T)


pair("one weight for queries, keys and values", _in_one, _fused_weights, "order", "causal")


def _interleaved_weights() -> Any:
    """Of each head queries, keys and values side by side, as in Megatron and GPT-NeoX."""
    x, weights = _inputs(), _weights()
    with torch.no_grad():
        parts = [w.view(_HEADS, _SIZE, _WIDTH) for w in weights[:3]]
        fused = torch.stack(parts, 1).reshape(3 * _WIDTH, _WIDTH).clone().requires_grad_()
    made = (x @ fused.T).view(_ROWS, _LENGTH, _HEADS, 3, _SIZE)
    q, k, v = (made[..., i, :].transpose(1, 2) for i in range(3))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return _step([fused, weights[3]], _joined(mixed) @ weights[3].T)


pair("weights with heads side by side", _in_one, _interleaved_weights)
pair("weights with heads side by side, beside one weight", _fused_weights, _interleaved_weights)


def _groups(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Two heads of queries share one of keys and values."""
    x, weights = _inputs(dtype), _weights(dtype, shares=2)
    q, k, v = _heads(x @ weights[0].T), *(_heads(x @ w.T, _HEADS // 2) for w in weights[1:3])
    if how == "one":
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return _step(weights, _joined(mixed) @ weights[3].T)
    if how == "repeated":
        if error == "tiled":
            k, v = (each.repeat(1, 2, 1, 1) for each in (k, v))  # wrong: tiled
        else:
            k, v = (each.repeat_interleave(2, 1) for each in (k, v))
    else:
        k, v = (
            each[:, :, None].expand(-1, -1, 2, -1, -1).reshape(_ROWS, _HEADS, _LENGTH, _SIZE)
            for each in (k, v)
        )  # fmt: skip
    scores = q @ k.transpose(-1, -2) / math.sqrt(_SIZE)
    scores = scores.masked_fill(torch.ones(_LENGTH, _LENGTH).triu(1).bool(), -torch.inf)
    return _step(weights, _joined(scores.softmax(-1) @ v) @ weights[3].T)


pair(
    "groups of heads, repeated",
    lambda: _groups("one"),
    lambda error: _groups("repeated", error=error),
    "tiled",
)
pair("groups of heads, expanded", lambda: _groups("one"), lambda: _groups("expanded"))
pair("groups of heads, in two ways", lambda: _groups("repeated"), lambda: _groups("expanded"))
pair(
    "groups of heads in bfloat16",
    lambda: _groups("one"),
    lambda error: _groups("repeated", torch.bfloat16, error),
    "tiled",
)


def _blocks() -> Any:
    """Keys in blocks, with a running maximum and sum, as flash attention does."""
    x, weights = _inputs(), _weights()
    q, k, v = (_heads(x @ w.T) for w in weights[:3])
    most = torch.full((_ROWS, _HEADS, _LENGTH, 1), -torch.inf)
    total, mixed = torch.zeros_like(most), torch.zeros_like(q)
    places = torch.arange(_LENGTH)
    for start in range(0, _LENGTH, 4):
        scores = q @ k[:, :, start : start + 4].transpose(-1, -2) * _SIZE**-0.5
        scores = scores.masked_fill(places[start : start + 4] > places[:, None], -torch.inf)
        new = torch.maximum(most, scores.amax(-1, keepdim=True))
        factor, chances = (most - new).exp(), (scores - new).exp()
        total = total * factor + chances.sum(-1, keepdim=True)
        mixed = mixed * factor + chances @ v[:, :, start : start + 4]
        most = new
    return [(_joined(mixed / total) @ weights[3].T).detach()]


def _forward_alone() -> Any:
    x, weights = _inputs(), _weights()
    q, k, v = (_heads(x @ w.T) for w in weights[:3])
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return [(_joined(mixed) @ weights[3].T).detach()]


pair("attention in blocks", _forward_alone, _blocks)


def _multihead(how: str) -> Any:
    seeded()
    layer = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=how != "sequence first")
    x = _inputs()
    mask = torch.ones(_LENGTH, _LENGTH).triu(1).bool()
    if how == "sequence first":
        x = x.transpose(0, 1)

    def loss(model: nn.Module) -> torch.Tensor:
        if how == "by hand":
            q, k, v = (
                _heads(part) for part in F.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
            )
            scores = (q @ k.transpose(-1, -2) * _SIZE**-0.5).masked_fill(mask, -torch.inf)
            y = layer.out_proj(_joined(scores.softmax(-1) @ v))
        else:
            y, _ = layer(x, x, x, attn_mask=mask, need_weights=how == "weights")
        return y.square().mean()

    return train(layer, loss)


for how in ("by hand", "weights", "sequence first"):
    pair(f"MultiheadAttention, {how}", lambda: _multihead(""), lambda how=how: _multihead(how))
pair("MultiheadAttention as the other", lambda: _multihead("by hand"), lambda: _multihead(""))


def _padded(how: str) -> Any:
    """Rows of other lengths: with a mask of the padding, or each alone."""
    x, weights = _inputs(), [w.detach() for w in _weights()]
    lengths = [_LENGTH, 7]
    if how == "alone":
        rows = []
        for row, length in zip(x, lengths, strict=True):
            q, k, v = ((row[:length] @ w.T).view(length, _HEADS, _SIZE).transpose(0, 1) for w in weights[:3])
            mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            rows.append(mixed.transpose(0, 1).reshape(length, _WIDTH) @ weights[3].T)
        return rows
    q, k, v = (_heads(x @ w.T) for w in weights[:3])
    keep = torch.arange(_LENGTH)[None] < torch.tensor(lengths)[:, None]
    mask = keep[:, None, None] & torch.ones(_LENGTH, _LENGTH).tril().bool()
    y = _joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)) @ weights[3].T
    return [row[:length] for row, length in zip(y, lengths, strict=True)]


pair("padding with a mask, beside rows alone", lambda: _padded("mask"), lambda: _padded("alone"))
