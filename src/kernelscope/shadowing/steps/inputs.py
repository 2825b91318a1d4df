"""What the graphs of a step are evaluated with: real inputs, and gradients that are made up.

The inputs of a later execution are kept until it is known whether that is right.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.node_kinds import value_of
from kernelscope.shadowing.regions.copies import Snapshot, is_plain


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
    """Real inputs by name; the gradients of outputs, which come in only later, are made up if unknown."""
    generator, found = torch.Generator().manual_seed(1), dict[str, Any]()
    for node in placeholders(graph):
        fake = value_of(node)
        if node.name in alive:
            found[node.name] = alive[node.name]
        elif isinstance(fake, torch.Tensor) and _is_gradient(node.name):
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


class CalledGraph:
    """A graph that a region called, and with what: what the region was given is not copied once more."""

    def __init__(self, path: str, inputs: Mapping[str, Any], given: Sequence[Any]) -> None:
        self.path = path  # of the wrapper
        known = {_place(value): index for index, value in enumerate(given) if _is_plain(value)}
        self._indices = {n: known.get(_place(v)) if _is_plain(v) else None for n, v in inputs.items()}
        self._others = Snapshot([v if self._indices[n] is None else None for n, v in inputs.items()])

    def inputs(self, given: Snapshot) -> dict[str, Any]:
        """By name; `given`: what the region was given, before it ran."""
        values, others = given.fresh(differentiates=False).values, self._others.fresh(differentiates=False)
        pairs = zip(self._indices.items(), others.values, strict=True)
        return {n: other if index is None else values[index].detach() for (n, index), other in pairs}


class CalledGraphs(threading.local):
    """Those of the execution that is being compared in this thread."""

    def __init__(self) -> None:
        self._noted: list[CalledGraph] | None = None
        self._given: Sequence[Any] | None = ()  # None: of the inputs only the gradients are kept

    @contextmanager
    def noted(self, given: Sequence[Any]) -> Iterator[list[CalledGraph]]:
        """While a region runs on what it was given."""
        found: list[CalledGraph] = []
        self._noted, self._given = found, given
        try:
            yield found
        finally:
            self.end()

    def begin(self) -> None:
        """The backward of a region, of whose graphs the forward pass shows what they are called with."""
        self._noted, self._given = [], None

    def end(self) -> list[CalledGraph]:
        found, self._noted = self._noted or [], None
        return found

    def add(self, path: str, inputs: Mapping[str, Any]) -> None:
        if self._noted is not None:
            given = self._given
            kept = inputs if given is not None else {n: v for n, v in inputs.items() if _is_gradient(n)}
            self._noted.append(CalledGraph(path, kept, given or ()))


def _is_gradient(name: str) -> bool:
    """Whether an input of a graph is the gradient of an output."""
    return name.startswith("tangents")


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_plain(value)


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    """Two tensors in the same place have the same elements."""
    start = value.untyped_storage().data_ptr(), value.storage_offset()
    return value.device, *start, value.shape, value.stride(), value.dtype, value.is_conj(), value.is_neg()
