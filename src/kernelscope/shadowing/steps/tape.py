"""The random numbers that a traced graph draws, drawn as its ATen graph does: for evaluating that one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule

from kernelscope.probes.compiler_steps.decompositions import (
    decomposition_of,
    functional_arguments,
    functional_of,
)
from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.draws.unused_draws import DrawingCalls, may_draw
from kernelscope.shadowing.generator_state import seeded
from kernelscope.shadowing.reference.evaluate import CannotEvaluate

from .draws import Seeded, drawing_nodes, draws_inside, kind_of_draw, seeded_nodes


class Tape(DrawingCalls):  # type: ignore[no-untyped-call]
    """Decomposes operators that draw, as the compiler does, and keeps what they drew in the end."""

    supports_higher_order_operators = True

    def __init__(self, *, is_fixed: bool = True, unused: frozenset[int] = frozenset()) -> None:
        """Not fixed: other numbers each time; operators that were decomposed are kept, inner ones first.

        `unused` calls are not in the ATen graph, because nothing depends on what they draw.
        """
        super().__init__(unused)
        self._is_fixed = is_fixed
        self.drawn: list[tuple[str, torch.Tensor]] = []  # kind and numbers
        self.seeded: list[Any] = []  # operators that drew inside, each with its place here as the seed
        self.taken_apart: list[
            tuple[Any, Any, Any]
        ] = []  # operators that were decomposed, and their arguments

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not may_draw(func) or self.is_unused():
            return func(*args, **kwargs)
        plain = functional_of(func)
        if plain is None:
            return func(*args, **kwargs)
        args = functional_arguments(func, plain, args, kwargs)
        decomposition = decomposition_of(plain)
        made: Any = NotImplemented
        if decomposition is not None:
            with self.taking_apart():
                made = decomposition(*args, **kwargs)
            if not self._is_fixed and made is not NotImplemented:
                self.taken_apart.append((plain, args, kwargs))
        if made is NotImplemented and self._is_fixed and draws_inside(plain, args, kwargs):
            self.seeded.append(plain)
            with seeded(len(self.seeded) - 1):
                made = plain(*args, **kwargs)
        elif made is NotImplemented:
            made = plain(*args, **kwargs)
            if self._is_fixed and isinstance(made, torch.Tensor):
                self.drawn.append((kind_of_draw(plain), made.clone()))
        return made if plain is func else args[0].copy_(made)

    def is_of(self, graph: GraphModule) -> bool:
        """Whether the graph draws the same, as far as its operators tell."""
        kinds = [kind_of_draw(node.target) for node in drawing_nodes(graph)]
        inside = [node.target for node in seeded_nodes(graph)]
        return kinds == [kind for kind, _ in self.drawn] and inside == self.seeded

    def for_graph(self, graph: GraphModule) -> dict[str, Any]:
        """By the name of the node that draws them there."""
        nodes = drawing_nodes(graph)
        if [kind_of_draw(node.target) for node in nodes] != [kind for kind, _ in self.drawn]:
            raise CannotEvaluate("it draws random numbers, and eager draws different ones")
        found: dict[str, Any] = {n.name: value for n, (_, value) in zip(nodes, self.drawn, strict=True)}
        inside = seeded_nodes(graph)
        if [node.target for node in inside] == self.seeded:
            found |= {node.name: Seeded(number) for number, node in enumerate(inside)}
        return found


@contextmanager
def drawing_as_compiled(tape: ThreadMode) -> Iterator[None]:
    """Also operators that torch takes apart before a mode sees them: `dropout`."""
    with enable_python_dispatcher(), tape:
        yield
