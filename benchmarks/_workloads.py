"""Training steps to measure: GPT-2 124M for a GPU, transformer blocks for a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

LONG_ENOUGH = 0.020  # seconds: a shorter step on a CPU says little about a training step


@dataclass
class Workload:
    """A compiled training step: zero_grad, forward, backward."""

    description: str
    device: str
    step: Callable[[], None]
    kinds: int = 1  # of steps, which take turns: each has shapes of its own


class Block(nn.Module):
    """A transformer block: attention, then a GELU MLP, each behind a LayerNorm and around a residual."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(width, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        more: torch.Tensor = self.down(F.gelu(self.up(self.norm_2(x))))
        return x + more


class GPT2(nn.Module):
    """GPT-2 124M with its loss; the output layer shares the token embedding's weights."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50304) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.tokens(tokens) + self.positions(places)))
        logits = F.linear(x, self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def gpt2() -> Workload:
    torch.manual_seed(0)
    model = GPT2().to("cuda", torch.bfloat16)
    tokens, targets = torch.randint(50304, (2, 8, 1024), device="cuda")
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(tokens, targets).backward()

    return Workload("GPT-2 124M, forward and backward, bf16, 8×1024", "cuda", step)


def transformer_blocks() -> Workload:
    """As many blocks as make a step long enough."""
    count = 1
    while True:
        workload = _transformer_blocks(count)
        seconds = _seconds(workload.step)
        if seconds >= LONG_ENOUGH:
            return workload
        count = max(count + 1, int(1.3 * count * LONG_ENOUGH / seconds))


def _transformer_blocks(count: int) -> Workload:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(256, 8, causal=True) for _ in range(count)))
    x = torch.randn(8, 128, 256)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(x).square().mean().backward()

    blocks = "a transformer block" if count == 1 else f"{count} transformer blocks"
    return Workload(f"{blocks}, forward and backward, f32, 8×128×256", "cpu", step)


def _seconds(step: Callable[[], None]) -> float:
    for _ in range(3):
        step()
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return min(taken)
