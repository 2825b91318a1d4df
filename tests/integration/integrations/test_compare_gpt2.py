"""A GPT-2 block written by hand against the one in transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kernelscope

pytest.importorskip("transformers", reason="needs transformers: make test-integrations installs it")
_LENGTH = 8
_BUGS = ("gelu", "scale", "mask", "epsilon")


class _Block(nn.Module):
    def __init__(self, theirs: nn.Module, bug: str) -> None:
        super().__init__()
        self.bug = bug
        for name, parameter in theirs.named_parameters():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(parameter.detach().clone()))

    def normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        eps = 1e-3 if self.bug == "epsilon" else 1e-5
        mean = x.mean(-1, keepdim=True)  # planted: epsilon
        power = (x - mean).pow(2).mean(-1, keepdim=True)  # planted: epsilon
        scaled = (x - mean) / torch.sqrt(power + eps)  # planted: epsilon
        return scaled * getattr(self, f"{name}_weight") + getattr(self, f"{name}_bias")  # planted: epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        y = self.normed(x, "ln_1") @ self.attn_c_attn_weight + self.attn_c_attn_bias
        q, k, v = (each.view(rows, length, 4, -1).transpose(1, 2) for each in y.split(width, -1))
        scores = q @ k.transpose(-1, -2)
        if self.bug != "scale":
            scores = scores / math.sqrt(width // 4)
        first = 2 if self.bug == "mask" else 1
        later = torch.ones(length, length, dtype=torch.bool).triu(first)  # planted: mask
        scores = scores.masked_fill(later, float("-inf"))  # planted: scale # planted: mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + mixed @ self.attn_c_proj_weight + self.attn_c_proj_bias
        y = self.normed(x, "ln_2") @ self.mlp_c_fc_weight + self.mlp_c_fc_bias
        y = F.gelu(y, approximate="none" if self.bug == "gelu" else "tanh")  # planted: gelu
        return x + y @ self.mlp_c_proj_weight + self.mlp_c_proj_bias


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    off = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
    torch.manual_seed(0)
    block = GPT2Block(GPT2Config(n_embd=32, n_head=4, attn_implementation="eager", **off), layer_idx=0)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + ("ln_" in name and "weight" in name))
    return block


def _compared(theirs: nn.Module, bug: str) -> Any:
    x = torch.randn(2, _LENGTH, 32, generator=torch.Generator().manual_seed(1))

    def reference() -> None:
        mask = torch.full((_LENGTH, _LENGTH), torch.finfo(x.dtype).min).triu(1)[None, None]
        found = theirs(x, attention_mask=mask)
        (found[0] if isinstance(found, tuple) else found).square().mean().backward()

    block = _Block(theirs, bug)
    result = kernelscope.compare(reference, lambda: block(x).square().mean().backward())
    theirs.zero_grad()
    return result


def test_a_block_by_hand_is_that_of_transformers(theirs: nn.Module) -> None:
    result = _compared(theirs, "")
    assert result.status == 0, result.details()
    assert result.values["matched"] > 0.6 * result.values["reference"], result.details()


@pytest.mark.parametrize("bug", _BUGS)
def test_a_wrong_detail_is_named(theirs: nn.Module, bug: str) -> None:
    result = _compared(theirs, bug)
    assert result.status == 1, result.details()
    with open(__file__, encoding="utf-8") as text:
        lines = {n for n, line in enumerate(text, start=1) if f"# planted: {bug}" in line}
    assert result.first.call.origin[0].line in lines, result.details()
