"""What people record besides a training step of fixed shapes: small programs, compiled when they are made."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _workloads import Workload, gpt2, transformer_blocks
from torch import nn


class LlamaBlock(nn.Module):
    """RMSNorm, attention, SwiGLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.project = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        hidden = -(-8 * width // 3 // 64) * 64  # a multiple, as everywhere
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(width, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.norm_2(x)
        more: torch.Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return x + more


class Convolutions(nn.Module):
    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(blocks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return x.mean((2, 3))


def _llama(device: str) -> tuple[nn.Module, int, int, torch.dtype]:
    """The model, its width, the batch and the dtype."""
    torch.manual_seed(0)
    width, layers, batch = (1024, 8, 8) if device == "cuda" else (64, 2, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    blocks = nn.Sequential(*(LlamaBlock(width, width // 64) for _ in range(layers)))
    return blocks.to(device, dtype), width, batch, dtype


def training(device: str, *, dynamic: bool = False) -> Workload:
    model, width, batch, dtype = _llama(device)
    several = [1024, 896, 640, 768] if device == "cuda" else [48, 32, 24, 40]
    lengths = itertools.cycle(several)
    longest = several[0]
    data = torch.randn(batch, longest, width, device=device, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
    compiled = torch.compile(model, dynamic=True if dynamic else None)

    def step() -> None:
        x = data[:, : next(lengths)].contiguous() if dynamic else data
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        optimizer.step()

    what = "training + AdamW, dynamic=True, lengths vary" if dynamic else "training + AdamW, fixed shapes"
    return Workload(what, device, step, kinds=len(several) if dynamic else 1)


def dynamic_training(device: str) -> Workload:
    return training(device, dynamic=True)


def optimizer(device: str) -> Workload:
    torch.manual_seed(0)
    width = 1024 if device == "cuda" else 48
    parameters = [nn.Parameter(torch.randn(width, width, device=device)) for _ in range(24)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    adam = torch.optim.AdamW(parameters, foreach=True)

    @torch.compile
    def update() -> None:
        adam.step()

    def step() -> None:
        update()

    return Workload("compiled optimizer", device, step)


def convolutions(device: str) -> Workload:
    torch.manual_seed(0)
    width, blocks, size, batch = (128, 12, 56, 16) if device == "cuda" else (8, 4, 12, 2)
    model = Convolutions(width, blocks).to(device, memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = compiled(x).float().square().mean()
        loss.backward()

    return Workload("convolutions, channels_last, autocast", device, step)


def _inference(device: str, mode: str | None) -> Callable[[], None]:
    model, width, _, dtype = _llama(device)
    x = torch.randn(1, 32, width, device=device, dtype=dtype)
    compiled = torch.compile(model, mode=mode)

    def step() -> None:
        if mode is not None:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            compiled(x)

    return step


def inference(device: str) -> Workload:
    return Workload("inference, batch 1", device, _inference(device, None))


def cuda_graphs(device: str) -> Workload:
    return Workload("inference, batch 1, CUDA graphs", device, _inference(device, "reduce-overhead"))


def flex(device: str) -> Workload:
    from torch.nn.attention.flex_attention import flex_attention

    torch.manual_seed(0)
    shape = (4, 16, 2048, 64)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def causal(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.where(i >= j, score, -float("inf"))

    compiled = torch.compile(flex_attention)

    def step() -> None:
        for each in (q, k, v):
            each.grad = None
        compiled(q, k, v, score_mod=causal).sum().backward()

    return Workload("flex_attention forward and backward", device, step)


EVERYWHERE: dict[str, Callable[[str], Workload]] = {
    "gpt2": lambda device: gpt2() if device == "cuda" else transformer_blocks(),
    "training": training,
    "dynamic": dynamic_training,
    "optimizer": optimizer,
    "convolutions": convolutions,
    "inference": inference,
    "cuda-graphs": cuda_graphs,
    "flex": flex,
}
ONLY_CUDA = ("cuda-graphs", "flex")
