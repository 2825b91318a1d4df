"""User-written Triton kernels, for the tests that interpret them and for those that run them on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


@triton.jit
def scale_kernel(x_ptr, BLOCK: tl.constexpr, out_ptr, n, factor=2.0):
    """Its constexpr stands before a tensor: names taken from the signature unfiltered would be shifted."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * factor, mask)


@triton.jit
def accumulate_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + offsets, offsets < n, other=0.0)
    tl.atomic_add(total_ptr, tl.sum(values, axis=0))


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, row_stride, columns, BLOCK: tl.constexpr):
    """Its pointer moves through a loop."""
    row = tl.program_id(0)
    pointers = x_ptr + row * row_stride + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(pointers, start + tl.arange(0, BLOCK) < columns, other=0.0)
        pointers += BLOCK
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@triton.jit
def bias_kernel(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """`bias_ptr` may be None."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x_ptr + offsets, mask)
    if bias_ptr is not None:
        values += tl.load(bias_ptr + offsets, mask)
    tl.store(out_ptr + offsets, values, mask)


@triton.jit
def increment(pointers, mask):
    tl.store(pointers, tl.load(pointers, mask) + 1.0, mask)


@triton.jit
def increment_kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Hands its pointer to another function, so nothing in its own text says what happens to it."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    increment(x_ptr + offsets, offsets < n)


@triton.jit
def refusing_kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 0, "refused")
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


CONFIGS = [triton.Config({"BLOCK": 32}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def tuned_scale_kernel(x_ptr, BLOCK: tl.constexpr, out_ptr, n, factor):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * factor, mask)


@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["total_ptr"])
@triton.jit
def tuned_accumulate_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + offsets, offsets < n, other=0.0)
    tl.atomic_add(total_ptr, tl.sum(values, axis=0))


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def guarded_scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * factor)
    else:
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * factor, mask)


def blocks(n: int) -> Callable[[dict[str, Any]], tuple[int, ...]]:
    """A grid that depends on the block size, as kernels are usually launched."""
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[blocks(x.numel())](x, y, out, x.numel(), BLOCK=BLOCK)
    return out


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    scale_kernel[blocks(x.numel())](x, BLOCK, out, x.numel(), factor)
    return out


def tuned_scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned_scale_kernel[blocks(x.numel())](x, out_ptr=out, n=x.numel(), factor=factor)
    return out


@triton.jit
def doubled_rows_kernel(source, target, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of two tensor descriptors, each with blocks of ROWS whole rows."""
    first = tl.program_id(0) * ROWS
    target.store([first, 0], source.load([first, 0]) * 2)
