"""A run's calls as a table for pandas or Arrow, where those are installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kernelscope.errors import RunError

from .call import KernelCall


def to_pandas(calls: Sequence[KernelCall]) -> Any:
    return _needed("pandas").DataFrame(columns(calls))


def to_arrow(calls: Sequence[KernelCall]) -> Any:
    return _needed("pyarrow").table(columns(calls))


def columns(calls: Sequence[KernelCall]) -> dict[str, list[Any]]:
    """Column by column; None where a call does not have it."""
    return {name: [read(call) for call in calls] for name, read in _COLUMNS.items()}


_COLUMNS: dict[str, Callable[[KernelCall], Any]] = {
    "index": lambda c: c.index,
    "kind": lambda c: c.kind,
    "producer": lambda c: c.producer,
    "kernel_name": lambda c: c.kernel_name,
    "grid": lambda c: None if c.grid is None else list(c.grid),
    "device": lambda c: c.device,
    "stream": lambda c: c.stream,
    "thread": lambda c: c.thread,
    "graph": lambda c: c.graph.id if c.graph else None,
    "graph_call": lambda c: c.graph_call,
    "step": lambda c: c.step,
    "phase": lambda c: c.phase,
    "replay": lambda c: c.replay,
    "parent": lambda c: c.parent,
    "time": lambda c: c.time,
    "file": lambda c: c.origin.file if c.origin else None,
    "line": lambda c: c.origin.line if c.origin else None,
    "error": lambda c: c.error or None,
}


def _needed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise RunError(f"this table needs {name}, which is not installed: pip install {name}") from None
