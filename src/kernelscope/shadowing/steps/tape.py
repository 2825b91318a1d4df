"""The random numbers that a traced graph draws, drawn as its ATen graph does: for evaluating that one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from kernelscope.probes.compiler_steps.decompositions import decomposition_of, functional_of
from kernelscope.shadowing.reference.evaluate import CannotEvaluate

from .draws import drawing_nodes, kind_of_draw


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Decomposes operators that draw, as the compiler does, and keeps what they drew in the end."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[tuple[str, torch.Tensor]] = []  # kind and numbers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return func(*args, **kwargs)
        plain = functional_of(func)
        if plain is None:
            return func(*args, **kwargs)
        decomposition = decomposition_of(plain)
        made: Any = NotImplemented
        if decomposition is not None:
            with self:
                made = decomposition(*args, **kwargs)
        if made is NotImplemented:
            made = plain(*args, **kwargs)
            if isinstance(made, torch.Tensor):
                self.drawn.append((kind_of_draw(plain), made.clone()))
        return made if plain is func else args[0].copy_(made)

    def for_graph(self, graph: GraphModule) -> dict[str, torch.Tensor]:
        """By the name of the node that draws them there."""
        nodes = drawing_nodes(graph)
        if [kind_of_draw(node.target) for node in nodes] != [kind for kind, _ in self.drawn]:
            raise CannotEvaluate("it draws random numbers, and not the same ones in eager")
        return {node.name: value for node, (_, value) in zip(nodes, self.drawn, strict=True)}


@contextmanager
def drawing_as_compiled(tape: Tape) -> Iterator[None]:
    """Also operators that torch takes apart before a mode sees them: `dropout`."""
    with enable_python_dispatcher(), tape:
        yield
