"""On a GPU atomics race for real: the kernel that uses them is named, forward and backward."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import kernelscope

ROOT = Path(__file__).parents[3]


def test_atomics_in_a_compiled_kernel() -> None:
    def fn(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        return torch.zeros(8, device="cuda").index_add(0, where, x.sin()).cos()

    x, where = torch.randn(1_000_000, device="cuda"), torch.randint(0, 8, (1_000_000,), device="cuda")
    result = kernelscope.check_determinism(torch.compile(fn), x, where, runs=5)
    [kernel] = result.kernels
    assert kernel.kind == "triton"
    assert "index_add" in kernel.kernel_name
    assert kernel.is_confirmed


def test_atomics_in_the_backward() -> None:
    table = torch.nn.Parameter(torch.randn(8, device="cuda"))
    weights = torch.randn(1_000_000, device="cuda")  # equal numbers would give equal sums, whatever the order

    @torch.compile
    def loss(rows: torch.Tensor) -> torch.Tensor:
        return (table.gather(0, rows).sin() * weights).sum()

    def step(rows: torch.Tensor) -> torch.Tensor | None:
        loss(rows).backward()
        return table.grad

    result = kernelscope.check_determinism(step, torch.randint(0, 8, (1_000_000,), device="cuda"), runs=5)
    assert result.kernels
    assert all("backward" in kernel.graph for kernel in result.kernels)


@triton.jit
def add_up(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 4, tl.load(x + at, mask=at < n), mask=at < n)


def test_a_users_own_kernel() -> None:
    x = torch.randn(1_000_000, device="cuda")

    def fn(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(4, device="cuda")
        add_up[(triton.cdiv(len(x), 1024),)](x, out, len(x), BLOCK=1024)
        return out

    result = kernelscope.check_determinism(fn, x, runs=5)
    assert [kernel.kernel_name for kernel in result.kernels] == ["add_up"]


def test_a_deterministic_step_is_not_accused() -> None:
    layers = torch.nn.Linear(64, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1)
    compiled = torch.compile(torch.nn.Sequential(*layers).cuda())
    x = torch.randn(32, 64, device="cuda")
    result = kernelscope.check_determinism(lambda x: compiled(x).sum().backward(), x)
    assert not result, str(result)


@pytest.mark.slow
def test_flex_attention() -> None:
    words = [sys.executable, str(ROOT / "examples" / "flex_determinism.py"), "--device", "cuda"]
    child = subprocess.run(words, capture_output=True, text=True)
    assert child.returncode in (0, 1), child.stderr
    assert "flex_attention on cuda" in child.stdout
