"""Compiling with the gcu backend and looking at what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.gcu import backend, compile_graph
from kernelscope.gcu.compile_graph import Compilation
from kernelscope.gcu.lowering.lower import Fallback


@dataclass
class Look:
    """Every compilation, in order."""

    compilations: list[Compilation] = field(default_factory=list)

    @property
    def fallbacks(self) -> list[Fallback]:
        return [f for c in self.compilations if c.lowered is not None for f in c.lowered.fallbacks]

    @property
    def dsl(self) -> str:
        return "\n".join(c.dsl for c in self.compilations)

    @property
    def kernels(self) -> int:
        return sum(bool(k.text) for c in self.compilations for k in c.kernels)


def compile_and_look(f: Callable[..., Any], **settings: Any) -> tuple[Callable[..., Any], Look]:
    """`torch.compile(f, backend="gcu")`, and what is compiled whenever that is called."""
    look = Look()

    def looking(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        original = compile_graph.compile_graph

        def keep(*args: Any, **kwargs: Any) -> Any:
            look.compilations.append(args[3])
            return original(*args, **kwargs)

        backend.compile_graph = keep  # type: ignore[attr-defined]
        try:
            return backend.gcu(module, inputs)
        finally:
            backend.compile_graph = original  # type: ignore[attr-defined]

    settings.setdefault("fullgraph", True)
    return torch.compile(f, backend=looking, **settings), look
