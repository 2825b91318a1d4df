"""Weights of several layers in one tensor: one after the other, in turns, the other way round."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from .registry import drawn, heads, pair

_ROWS, _LENGTH, _WIDTH, _HEADS = 2, 12, 32, 4
_SIZE = _WIDTH // _HEADS
_BF16 = torch.bfloat16


def _layout(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Weights of queries, keys and values in one tensor: one after the other, or in turns."""
    x = drawn(_ROWS, _LENGTH, _WIDTH, dtype=dtype)
    parts = [drawn(_WIDTH, _WIDTH, seed=10 + i).to(dtype) / 6 for i in range(3)]
    out = (drawn(_WIDTH, _WIDTH, seed=13) / 6).to(dtype).requires_grad_()
    if how == "apart":
        weights = [each.clone().requires_grad_() for each in parts]
    elif how == "one":
        weights = [torch.cat(parts).requires_grad_()]
    elif how == "last first":
        weights = [torch.cat(parts[::-1]).requires_grad_()]
    elif how == "columns":
        weights = [torch.cat([each.T for each in parts], 1).contiguous().requires_grad_()]
    else:  # head by head, or number by number
        groups = _HEADS if how == "by heads" else _WIDTH
        turned = torch.stack([each.view(groups, -1, _WIDTH) for each in parts], 1)
        weights = [turned.reshape(3 * _WIDTH, _WIDTH).clone().requires_grad_()]
    optimizer = torch.optim.AdamW([*weights, out], lr=1e-2)
    for _ in range(2):
        if how == "apart":
            q, k, v = (heads(F.linear(x, weight)) for weight in weights)
        elif how == "one":
            q, k, v = (heads(each) for each in F.linear(x, weights[0]).chunk(3, -1))
        elif how == "last first":
            v, k, q = (heads(each) for each in F.linear(x, weights[0]).chunk(3, -1))
        elif how == "columns":
            q, k, v = (heads(each) for each in (x @ weights[0]).split(_WIDTH, -1))
        elif how == "by heads":
            made = F.linear(x, weights[0]).view(_ROWS, _LENGTH, _HEADS, 3, _SIZE)
            q, k, v = (made[..., i, :].transpose(1, 2) for i in range(3))
        else:
            made = F.linear(x, weights[0]).view(_ROWS, _LENGTH, _WIDTH, 3)
            q, k, v = (heads(made[..., i]) for i in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = F.linear(mixed.transpose(1, 2).flatten(2), out)
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [y.detach()]


_LAYOUTS = ("apart", "one", "last first", "columns", "by heads", "by numbers")
for _first in _LAYOUTS:
    for _second in _LAYOUTS:
        if _first != _second:
            pair(f"weights {_second}, beside {_first}", partial(_layout, _first), partial(_layout, _second))
pair("weights by heads in bfloat16, beside one", partial(_layout, "one"), partial(_layout, "by heads", _BF16))
pair(
    "weights apart in bfloat16, beside by heads",
    partial(_layout, "by heads"),
    partial(_layout, "apart", _BF16),
)


def _gate(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """Gate and values in one weight: one after the other, in turns, or in two weights."""
    x = drawn(24, _WIDTH, dtype=dtype)
    gate, up = (drawn(64, _WIDTH, seed=20 + i).to(dtype) / 6 for i in range(2))
    down = (drawn(_WIDTH, 64, seed=22) / 8).to(dtype).requires_grad_()
    if how == "apart":
        weights = [each.clone().requires_grad_() for each in (gate, up)]
    elif how == "turns":
        weights = [torch.stack([gate, up], 1).flatten(0, 1).clone().requires_grad_()]
    else:
        weights = [torch.cat([up, gate]).requires_grad_()]
    optimizer = torch.optim.SGD([*weights, down], lr=0.1, momentum=0.9)
    for _ in range(2):
        if how == "apart":
            a, b = (F.linear(x, weight) for weight in weights)
        elif how == "turns":
            made = F.linear(x, weights[0])
            a, b = made[:, ::2], made[:, 1::2]
        else:
            b, a = F.linear(x, weights[0]).chunk(2, -1)
        y = F.linear(b * a.sigmoid(), down) if how != "glu" else F.linear(F.glu(torch.cat([b, a], -1)), down)
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [y.detach()]


_GATES = ("apart", "turns", "one", "glu")
for _first in _GATES:
    for _second in _GATES:
        if _first != _second:
            pair(f"gate, {_second} beside {_first}", partial(_gate, _first), partial(_gate, _second))
pair("gate, turns in bfloat16", partial(_gate, "apart"), partial(_gate, "turns", _BF16))
