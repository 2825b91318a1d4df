"""A training step, and scripts in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from tests.gpu.models import Block

SRC = Path(__file__).parents[3] / "src"


def training_step(dtype: torch.dtype = torch.bfloat16) -> Callable[[], torch.Tensor]:
    torch.manual_seed(0)
    model = Block().cuda().to(dtype)
    x = torch.randn(2, 16, 64, device="cuda", dtype=dtype)
    compiled = torch.compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        out = compiled(x)
        out.float().square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    return step


def child(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELSCOPE")}
    environment |= {"PYTHONPATH": str(SRC), **variables}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
