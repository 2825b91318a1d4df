"""A small decoder that reads a whole sequence at once, or token by token with a cache of keys and values.

The lines of errors that can be switched on end with `# planted`.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

Cache = list[tuple[torch.Tensor, torch.Tensor]]
BUGS = ("position", "scale", "window", "order", "mask")


class _Block(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, cache: Cache | None, bug: str) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache.append((k, v))
            k, v = (torch.cat([each[i] for each in cache], 2) for i in range(2))
            k = k.roll(1, 2) if bug == "order" else k  # planted: order
            k, v = (k[:, :, -4:], v[:, :, -4:]) if bug == "window" else (k, v)
        scores = q @ k.transpose(-1, -2)  # planted: window # planted: order
        scores = scores / math.sqrt(width // self.heads)
        if length > 1 and bug != "mask":
            before = k.shape[2] - length
            later = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device).triu(before + 1)
            scores = scores.masked_fill(later, float("-inf"))
        if cache is not None and bug == "scale":
            scores = scores * 1.2  # planted: scale
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width)  # planted: mask
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.head = nn.Embedding(50, 32), nn.Embedding(16, 32), nn.Linear(32, 50)
        self.blocks = nn.ModuleList(_Block() for _ in range(2))

    def forward(
        self, ids: torch.Tensor, start: int = 0, caches: list[Cache] | None = None, bug: str = ""
    ) -> torch.Tensor:
        first = start + 1 if bug == "position" else start
        places = torch.arange(first, first + ids.shape[1], device=ids.device)  # planted: position
        x = self.tokens(ids) + self.places(places)  # planted: position
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches is not None else None, bug)
        return self.head(x)


@torch.no_grad()
def prefill(model: Decoder, ids: torch.Tensor) -> torch.Tensor:
    return model(ids)


@torch.no_grad()
def decode(model: Decoder, ids: torch.Tensor, bug: str = "", prompt: int = 1) -> list[torch.Tensor]:
    """The prompt at once, then token by token."""
    caches: list[Cache] = [[] for _ in model.blocks]
    found = [model(ids[:, :prompt], 0, caches, bug)]
    return found + [model(ids[:, t : t + 1], t, caches, bug) for t in range(prompt, ids.shape[1])]
