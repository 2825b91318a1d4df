"""What the graphs of a step are evaluated with: real inputs, and gradients that are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.node_kinds import value_of


def placeholders(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def sizes_of(nodes: Sequence[Node], values: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols of dynamic shapes (s77), read from the inputs that have them as a size."""
    found: dict[str, Any] = {}
    for node in nodes:
        fake, real = value_of(node), values.get(node.name)
        pairs = [(fake, real)]
        if isinstance(fake, torch.Tensor) and isinstance(real, torch.Tensor):
            pairs = [
                *zip(fake.shape, real.shape, strict=False),
                *zip(fake.stride(), real.stride(), strict=False),
            ]
        for one, other in pairs:
            expression = getattr(getattr(one, "node", None), "expr", None)
            if getattr(expression, "is_Symbol", False) and isinstance(other, int | float):
                found.setdefault(str(expression), other)
    return found


def complete(graph: GraphModule, alive: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Real inputs by name; the gradients of outputs, which come in only later, are made up."""
    generator, found = torch.Generator().manual_seed(1), dict[str, Any]()
    for node in placeholders(graph):
        fake = value_of(node)
        if node.name in alive:
            found[node.name] = alive[node.name]
        elif isinstance(fake, torch.Tensor) and node.name.startswith("tangents"):
            found[node.name] = _made_up(fake, sizes, generator)
    return found


def _made_up(fake: torch.Tensor, sizes: Mapping[str, Any], generator: torch.Generator) -> torch.Tensor:
    if not (fake.is_floating_point() or fake.is_complex()):
        raise CannotEvaluate("one of its gradients is not a float")
    try:
        shape = concrete_shape(fake, sizes)
    except KeyError as error:
        raise CannotEvaluate(f"the size {error} is unknown") from error
    dtype = torch.complex64 if fake.is_complex() else torch.float32
    return torch.randn(shape, generator=generator, dtype=dtype).to(fake.dtype).to(fake.device)
