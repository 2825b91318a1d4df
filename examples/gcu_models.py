"""An MLP, a transformer block and a ResNet block, compiled with the gcu backend and compared with eager.

python examples/gcu_models.py
CONDUCTOR_DEBUG=1 python examples/gcu_models.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class TransformerBlock(nn.Module):
    """Attention and an MLP, each behind a layer norm; `sdpa` takes torch's fused attention."""

    def __init__(self, width: int, heads: int, *, sdpa: bool = False) -> None:
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        size = width // self.heads
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, size)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.sdpa:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-2, -1) / size**0.5, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class ResNetBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm2(self.second(F.relu(self.norm1(self.first(x))))))


def main() -> None:
    torch.manual_seed(0)
    for model, x in (
        (Mlp(32, 64, 10), torch.randn(16, 32)),
        (TransformerBlock(64, 4), torch.randn(2, 16, 64)),
        (TransformerBlock(64, 4, sdpa=True), torch.randn(2, 16, 64)),
        (ResNetBlock(8), torch.randn(2, 8, 8, 8)),
    ):
        compiled = torch.compile(model, backend="gcu", fullgraph=True)
        out = compiled(x)
        out.square().mean().backward()
        difference = (out - model(x)).abs().max().item()
        print(f"{type(model).__name__:<17} largest difference from eager: {difference:.1e}")


if __name__ == "__main__":
    main()
