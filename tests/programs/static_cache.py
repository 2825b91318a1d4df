"""A small decoder whose cache is a memory of fixed size: rows are put into it, a mask hides the others."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

SIZE = 16
BUGS = ("scale", "mask", "slot")
Cache = tuple[torch.Tensor, torch.Tensor]


class _Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(
        self, x: torch.Tensor, cache: Cache | None, places: torch.Tensor | None, bug: str
    ) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is None or places is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            cache[0].index_copy_(2, places, k)
            cache[1].index_copy_(2, (places + 1) % SIZE if bug == "slot" else places, v)
            last = (places - 1).clamp(min=0) if bug == "mask" else places
            seen = torch.arange(SIZE, device=x.device)[None, :] <= last[:, None]
            scale = 0.5 if bug == "scale" else None
            mixed = F.scaled_dot_product_attention(q, *cache, attn_mask=seen, scale=scale)  # named
        return x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.layers = nn.ModuleList(_Attention() for _ in range(2))

    def forward(
        self, ids: torch.Tensor, caches: list[Cache] | None = None, places: torch.Tensor | None = None,
        bug: str = "",
    ) -> torch.Tensor:  # fmt: skip
        x = self.tokens(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches is not None else None, places, bug)
        return self.head(x)


@torch.no_grad()
def prefill(model: Decoder, ids: torch.Tensor) -> torch.Tensor:
    return model(ids)


@torch.no_grad()
def decode(model: Decoder, ids: torch.Tensor, bug: str, prompt: int) -> list[torch.Tensor]:
    device = ids.device
    shape = (len(ids), 4, SIZE, 8)
    caches = [(torch.zeros(shape, device=device), torch.zeros(shape, device=device)) for _ in model.layers]
    found = [model(ids[:, :prompt], caches, torch.arange(prompt, device=device), bug)]
    for place in range(prompt, ids.shape[1]):
        found.append(model(ids[:, place : place + 1], caches, torch.tensor([place], device=device), bug))
    return found
