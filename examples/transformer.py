"""A small transformer, trained for three steps: something to look at.

kernelscope run --stages --values save --time examples/transformer.py
kernelscope report

With --nudge, one weight is changed by a thousandth before the second step: a second run to compare with.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, words: int = 50, width: int = 32, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads=4) for _ in range(blocks))
        self.head = nn.Linear(width, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main(options: list[str]) -> None:
    torch.manual_seed(0)
    model = Transformer(blocks=1 if "--small" in options else 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model)
    words = torch.randint(0, 50, (2, 17))
    for step in range(3):
        if step == 1 and "--nudge" in options:
            with torch.no_grad():
                model.blocks[0].up.weight[5, 7] += 1e-3
        logits = compiled(words[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
