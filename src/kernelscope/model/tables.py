"""A run's calls as a table for pandas or Arrow, where those are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelscope.errors import RunError

if TYPE_CHECKING:
    from .call import KernelCall
    from .run import Run


def to_pandas(run: Run) -> Any:
    return _needed("pandas").DataFrame(columns(run))


def to_arrow(run: Run) -> Any:
    return _needed("pyarrow").table(columns(run))


def columns(run: Run) -> dict[str, list[Any]]:
    """Column by column; None where a call has no such thing."""
    calls = run.calls
    return {name: [read(call) for call in calls] for name, read in _COLUMNS.items()}


def _file(call: KernelCall) -> str | None:
    return call.origin.file if call.origin else None


def _line(call: KernelCall) -> int | None:
    return call.origin.line if call.origin else None


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
    "file": _file,
    "line": _line,
    "error": lambda c: c.error or None,
}


def _needed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise RunError(f"{name} is not installed here; to get this table: pip install {name}") from None
