"""The seeds from which compiled code draws its random numbers, noted while a region runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class Seeds:
    """Of one execution of a region; the n-th draw of its graph uses the n-th of them."""

    numbers: list[int] = field(default_factory=list)
    graphs: int = 0  # that made some: with more than one, it is not known which draw is whose


_HERE = threading.local()


@contextmanager
def noted_seeds() -> Iterator[Seeds]:
    """Those that compiled code makes inside, in this thread."""
    outer, seeds = getattr(_HERE, "seeds", None), Seeds()
    _HERE.seeds = seeds
    try:
        yield seeds
    finally:
        _HERE.seeds = outer


def note_seeds(made: Any) -> None:
    """A launch has made these."""
    seeds: Seeds | None = getattr(_HERE, "seeds", None)
    if seeds is not None and isinstance(made, torch.Tensor):
        seeds.numbers += made.flatten().tolist()
        seeds.graphs += 1
