"""Rotary positions: halves or neighbours, complex numbers or cosines and sines, tables or computed anew."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .registry import pair

_ROWS, _HEADS, _LENGTH, _SIZE = 2, 3, 10, 8


def _weights(dtype: torch.dtype) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(6)
    width = _HEADS * _SIZE
    return [(torch.randn(width, width, generator=drawn) / 5).to(dtype) for _ in range(3)]


def _inputs(dtype: torch.dtype) -> torch.Tensor:
    width = _HEADS * _SIZE
    return torch.randn(_ROWS, _LENGTH, width, generator=torch.Generator().manual_seed(7)).to(dtype)


def _angles(base: float = 10000.0) -> torch.Tensor:
    frequency = base ** -(torch.arange(0, _SIZE, 2).float() / _SIZE)  # wrong: base
    return torch.outer(torch.arange(_LENGTH).float(), frequency)


def _halves(x: torch.Tensor, error: str) -> torch.Tensor:
    angles = _angles(500.0 if error == "base" else 10000.0)
    cos, sin = (torch.cat([each, each], -1).to(x.dtype) for each in (angles.cos(), angles.sin()))
    a, b = x.chunk(2, -1)
    turned = torch.cat([b, -a] if error == "sign" else [-b, a], -1)  # wrong: sign
    return x * cos + turned * sin  # wrong: base, sign


def _neighbours(x: torch.Tensor) -> torch.Tensor:
    angles = _angles()
    turned = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    turned = turned * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def _reordered(weight: torch.Tensor) -> torch.Tensor:
    """Rows of a weight for halves, so that they are right for neighbours."""
    parts = weight.view(_HEADS, 2, _SIZE // 2, -1).transpose(1, 2)
    return parts.reshape(weight.shape)


def _attention(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    x, (wq, wk, wv) = _inputs(dtype), _weights(dtype)
    if how == "neighbours":
        wq, wk = _reordered(wq), _reordered(wk)
    q, k, v = ((x @ w.T).view(_ROWS, _LENGTH, _HEADS, _SIZE).transpose(1, 2) for w in (wq, wk, wv))
    if how == "neighbours":
        q, k = _neighbours(q), _neighbours(k)
    else:
        q, k = _halves(q, error if error != "keys" else ""), k if error == "keys" else _halves(k, error)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # wrong: keys
    return [mixed.transpose(1, 2).flatten(2)]


pair("rotary neighbours beside halves", lambda: _attention("halves"), lambda: _attention("neighbours"))
pair(
    "rotary halves beside neighbours", lambda: _attention("neighbours"),
    lambda error: _attention("halves", error=error), "base", "sign",
)  # fmt: skip
pair(
    "rotary halves in bfloat16", lambda: _attention("halves"),
    lambda error: _attention("halves", torch.bfloat16, error), "base", "sign", "keys",
)  # fmt: skip
