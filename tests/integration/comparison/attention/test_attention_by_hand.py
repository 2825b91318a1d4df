"""One attention in several orders of its dimensions: no alarm, and an error is named at its line."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kernelscope

_BATCH, _TOKENS, _HEADS, _WIDTH = 2, 6, 3, 4
_ALL = _HEADS * _WIDTH
_Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


def _mask() -> torch.Tensor:
    return torch.ones(_TOKENS, _TOKENS, dtype=torch.bool).tril()


def _heads_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = (each.unflatten(-1, (_HEADS, _WIDTH)).transpose(1, 2) for each in (q, k, v))
    scores = (q @ k.transpose(-1, -2)) * scale
    weights = scores.masked_fill(~_mask(), -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(-2)


def _heads_last(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = (each.unflatten(-1, (_HEADS, _WIDTH)) for each in (q, k, v))
    scores = (q.unsqueeze(2) * k.unsqueeze(1)).sum(-1) * scale
    weights = scores.masked_fill(~_mask()[:, :, None], -math.inf).softmax(2)
    return torch.einsum("btsh,bshd->bthd", weights, v).flatten(-2)


def _tokens_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = (
        each.transpose(0, 1).contiguous().view(_TOKENS, _BATCH * _HEADS, _WIDTH).transpose(0, 1)
        for each in (q, k, v)
    )
    scores = torch.bmm(q, k.transpose(1, 2)) * scale
    weights = scores.masked_fill(~_mask(), -math.inf).softmax(-1)
    return torch.bmm(weights, v).transpose(0, 1).reshape(_TOKENS, _BATCH, _ALL).transpose(0, 1)


def _fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = (each.unflatten(-1, (_HEADS, _WIDTH)).transpose(1, 2) for each in (q, k, v))
    made = F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(), scale=scale)
    return made.transpose(1, 2).flatten(-2)


_FORMS = [_heads_first, _heads_last, _tokens_first, _fused]


def _program(attention: _Attention, scale: float = _WIDTH**-0.5) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(_ALL, 3 * _ALL), nn.Linear(_ALL, _ALL)
    q, k, v = first(torch.randn(_BATCH, _TOKENS, _ALL)).split(_ALL, -1)
    last(attention(q, k, v, scale)).square().mean().backward()


@pytest.mark.parametrize(("one", "two"), [*pairwise([*_FORMS, _heads_first]), *pairwise(reversed(_FORMS))])
def test_no_alarm(one: _Attention, two: _Attention) -> None:
    result = kernelscope.compare(lambda: _program(one), lambda: _program(two))
    assert result.status == 0, result.details()


@pytest.mark.parametrize("form", [_heads_last, _tokens_first])
def test_a_wrong_scale_is_named(form: _Attention) -> None:
    result = kernelscope.compare(lambda: _program(_heads_first), lambda: _program(form, 0.6))
    assert result.first is not None
    assert result.first.call.name == "aten.mul.Tensor", result.details()
    assert result.first.call.origin[0].function == form.__name__, result.details()
