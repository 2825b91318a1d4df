"""On which threads the calls of a divergence ran, of runs with several threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelscope.analysis.alignment.aligned_calls import Alignment
from kernelscope.store.columns import Columns, Ints
from kernelscope.text.amounts import counted

from .divergence_parts import DivergenceFields


def thread_fields(alignment: Alignment, found: DivergenceFields) -> dict[str, Any]:
    """The fields of a divergence that tell its thread; none for runs of one thread."""
    if not alignment.threads or not found:
        return {}
    a, b = alignment.thread_of_a(found.index_a), alignment.thread_of_b(found.index_b)
    return {"thread": _name(alignment, a, b), "thread_a": a, "thread_b": b}


def _name(alignment: Alignment, a: int | None, b: int | None) -> str:
    name_a = "" if a is None else alignment.names.of_a[a]
    name_b = "" if b is None else alignment.names.of_b[b]
    return (
        f"{name_a}, in the second run {name_b}" if name_a and name_b not in ("", name_a) else name_a or name_b
    )


def on_thread(alignment: Alignment, *, a: int | None = None, b: int | None = None) -> str:
    """Behind the name of the call with this index in the first run, or in the second."""
    if not alignment.threads:
        return ""
    name = _name(alignment, alignment.thread_of_a(a), alignment.thread_of_b(b))
    return f" on {name}"


def thread_notes(alignment: Alignment) -> Iterator[str]:
    """Threads that one run does not have, and work that ran on another thread."""
    for one, other in alignment.threads:
        if other is None and one is not None:
            yield from _alone(alignment.columns_a, one, alignment.a, alignment.names.of_a, "first")
        if one is None and other is not None:
            yield from _alone(alignment.columns_b, other, alignment.b, alignment.names.of_b, "second")
    if alignment.moved:
        calls = counted(alignment.moved, "call")
        yield f"{calls} ran on another thread in the second run"


def _alone(columns: Columns, thread: int, paired: Ints, names: dict[int, str], which: str) -> Iterator[str]:
    """A thread whose calls the other run does not have; one whose work ran on other threads is not told."""
    own = np.flatnonzero(columns.thread == thread)
    rest = own[~np.isin(own, paired)]
    if len(rest):
        first = columns.sites[int(columns.site[rest[0]])].kernel.name
        calls = counted(len(rest), "call")
        at = f"call {int(columns.index[rest[0]])}, {first}"
        yield f"only the {which} run has {names[thread]}: {calls}, the first is {at}"
