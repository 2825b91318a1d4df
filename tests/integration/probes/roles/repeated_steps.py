"""Compiled steps recorded three times, each time with other garbage in fresh memory, and what is in them.

Inputs are whole numbers, so that every intermediate value is exact and eager code can say what it must be.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import kernelscope
from kernelscope import KernelCall, Run
from kernelscope.fingerprint import fingerprint

Make = Callable[[], tuple[Tensor, ...]]


def whole(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def bits(tensor: Tensor) -> int:
    return fingerprint(tensor.detach()).bits


def stir() -> None:
    """Leave other contents in the memory that the next call will get."""
    filled = [torch.full((size,), random.random()) for size in range(1, 300) for _ in range(2)]
    del filled


def thrice(step: Callable[[], Any]) -> Run:
    """Three identical steps have identical roles and hashes; the first of them."""
    runs = []
    for _ in range(3):
        stir()
        with kernelscope.record(values="hash") as run:
            step()
        runs.append(run)
    first, *others = [[(c.kernel_name, c.roles, c.pre_hashes, c.post_hashes) for c in r.calls] for r in runs]
    assert first
    for other in others:
        assert other == first
    return runs[0]


def by_name(call: KernelCall, hashes: dict[int, Any]) -> dict[str, Any]:
    return {call.arg_names[i]: value for i, value in hashes.items()}


def position(call: KernelCall, wrapper_name: str) -> int:
    return call.wrapper_names.index(wrapper_name)


def role(call: KernelCall, name: str) -> str:
    return call.roles[call.arg_names.index(name)]


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(function)
    return result
