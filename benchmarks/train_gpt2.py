"""A training script that knows nothing of kernelscope; `benchmarks/command.py` runs it.

python benchmarks/train_gpt2.py --steps 200
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attend(self.norm_1(x)).split(width, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        more: torch.Tensor = self.narrow(F.gelu(self.widen(self.norm_2(x))))
        return x + more


class GPT2(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.words(tokens) + self.places(places)))
        logits = F.linear(x, self.words.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    on_gpu = options.device == "cuda"
    words, length, width, layers, heads = (50304, 1024, 768, 12, 12) if on_gpu else (512, 64, 64, 2, 2)
    batch = 8 if on_gpu else 4
    model = GPT2(words, length, width, layers, heads).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=on_gpu)
    compiled = torch.compile(model)
    for _ in range(options.steps):
        tokens = torch.randint(words, (batch, length + 1), device=options.device)
        with torch.autocast(options.device, torch.bfloat16, enabled=on_gpu):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
