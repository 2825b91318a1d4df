"""Three models, each a line of which is known: for tests of where kernels come from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.up(x)
        hidden = torch.nn.functional.gelu(hidden).relu()
        hidden = self.norm(hidden)
        return self.down(hidden)


class TransformerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Linear(16, 48)
        self.project = nn.Linear(16, 16)
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.attend(self.first(x)).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * 0.35
        weights = scores.softmax(-1)
        mixed = (weights @ v).transpose(1, 2).reshape(2, 6, 16)
        x = x + self.project(mixed)
        return x + self.mlp(self.second(x))


class ResNetBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm_one, self.norm_two = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm_one(self.one(x)).relu()
        y = self.norm_two(self.two(y))
        return (x + y).relu()


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (Mlp, (8, 16)),
    "transformer": (TransformerBlock, (2, 6, 16)),
    "resnet": (ResNetBlock, (2, 4, 8, 8)),
}


def training_step(name: str, device: str = "cpu") -> Callable[[], None]:
    """A compiled step: forward and backward, always on the same numbers."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().to(device)
    x = torch.randn(*shape, device=device)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        compiled(x).square().mean().backward()

    return step
