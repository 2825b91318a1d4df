"""Functions of a batch: where they are registered, and what they are made with."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class RowProgram:
    make: Callable[[], Made]
    names: tuple[str, ...] = ()  # one of them is in the kernel's name, or one of its nodes
    causes: tuple[str, ...] = ()
    ops: str = "graph"
    dim: Any = 0
    most: float = float("inf")  # by which that kernel's result for a row differs


VARIANT: dict[str, RowProgram] = {}
INVARIANT: dict[str, RowProgram] = {}


def variant(
    *names: str,
    cause: str | tuple[str, ...] = (),
    ops: str = "graph",
    dim: Any = 0,
    most: float = float("inf"),
) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        causes = (cause,) if isinstance(cause, str) else cause
        VARIANT[make.__name__] = RowProgram(make, names, causes, ops, dim, most)
        return make

    return add


def invariant(ops: str = "graph", dim: Any = 0) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        INVARIANT[make.__name__] = RowProgram(make, ops=ops, dim=dim)
        return make

    return add


_DEVICE = ContextVar("device", default="cpu")


def made_on(program: RowProgram, device: str) -> Made:
    token = _DEVICE.set(device)
    try:
        fn, args = program.make()
    finally:
        _DEVICE.reset(token)
    moved = tuple(
        a.to(device) if isinstance(a, torch.Tensor) and a.device.type != device else a for a in args
    )
    return (fn.to(device) if isinstance(fn, nn.Module) else fn), moved


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(_DEVICE.get())


def leaf(*shape: int) -> torch.Tensor:
    return rows(*shape).requires_grad_()


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module.to(_DEVICE.get())
