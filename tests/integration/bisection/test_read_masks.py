"""A mask, or numbers that are computed from constants, which the next kernel reads: their kernel is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.lowering import lowerings
from torch.nn import functional as F

import kernelscope

aten = torch.ops.aten


@torch.library.custom_op("kscope_read_masks::kept", mutates_args=())
def kept(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, x, 0)


@kept.register_fake
def _(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def attends_to_a_length(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    mask = torch.arange(x.shape[2])[None, :] <= lengths[:, None]
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, None, :])


def attends_in_a_window(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[2])
    mask = (places[:, None] - places[None, :]).abs() <= lengths[0]
    return F.scaled_dot_product_attention(x, x * 2, x, attn_mask=mask)


def keeps_a_triangle(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[-1])
    return kept(x, places <= lengths[0]).sum(-1)


def looks_up(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    ids = (lengths[:, None] <= torch.arange(6)).long()
    return F.embedding_bag(ids, x[0, 0], mode="sum")


PROGRAMS = [attends_to_a_length, attends_in_a_window, keeps_a_triangle, looks_up]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_the_kernel_of_the_mask_is_named(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lowerings, aten.le.Tensor, lambda *args: lowerings[aten.lt.Tensor](*args))
    args = torch.randn(2, 4, 16, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([5, 3])
    result = kernelscope.bisect(program, *args, runs=2, workaround=False)
    assert result.cause is not None, str(result)
    assert result.cause.axis == "kernel", str(result)
    (switch,) = result.cause.switches
    assert "le" in switch.info["nodes"], str(result)
    assert not switch.info["joined"], str(result)
    assert switch.info["kernel"].startswith("cpp_"), str(result)
