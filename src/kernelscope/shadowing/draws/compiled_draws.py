"""What compiled code draws, noted while a region runs: seeds, and numbers that operators of ATen drew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from kernelscope.probes.compiler_steps.decompositions import functional_of


class Drawn(NamedTuple):
    """What one operator drew that Inductor leaves to ATen."""

    operator: Any
    place: int  # of its node in the graph: launches may be in another order
    part: int | None  # which of several results
    value: torch.Tensor


@dataclass(slots=True)
class Draws:
    """Of one execution of a region; the n-th draw of its graph on a device uses the n-th seed there.

    `cuda` and `cuda:0` have seeds of their own: a device is what the program calls it.
    """

    seeds: dict[str, list[int]] = field(default_factory=dict)  # by the device as the graph names it
    drawn: list[Drawn] = field(default_factory=list)
    graphs: set[str] = field(default_factory=set)
    unused: frozenset[int] = frozenset()  # calls that draw in eager, and were left out by the compiler

    @property
    def is_known(self) -> bool:
        """With more than one graph, it is not known which draw is whose."""
        return len(self.graphs) == 1


_HERE = threading.local()


@contextmanager
def noted_draws() -> Iterator[Draws]:
    """Those that compiled code makes inside, in this thread."""
    outer, draws = getattr(_HERE, "draws", None), Draws()
    _HERE.draws = draws
    try:
        yield draws
    finally:
        _HERE.draws = outer


def note_seeds(graph: str, device: torch.device, made: Any) -> None:
    """A launch has made these for draws on a device, named as in the graph."""
    draws: Draws | None = getattr(_HERE, "draws", None)
    if draws is not None and isinstance(made, torch.Tensor):
        draws.seeds.setdefault(str(device), []).extend(made.flatten().tolist())
        draws.graphs.add(graph)


def note_drawn(graph: str, operator: Any, place: int, part: int | None, made: Any) -> None:
    """A launch has drawn this with an operator of ATen."""
    draws: Draws | None = getattr(_HERE, "draws", None)
    if draws is not None and isinstance(made, torch.Tensor):
        plain = functional_of(operator) or operator
        draws.drawn.append(Drawn(plain, place, part, made.detach().clone()))
        draws.graphs.add(graph)
