"""Standalone scripts from a recorded call or graph: writing one needs no torch, running one only torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .files import write as write
    from .one_call import call_script as call_script
    from .one_graph import graph_script as graph_script
    from .script_parts import Script as Script

_HOMES = {
    "Script": ".script_parts",
    "call_script": ".one_call",
    "graph_script": ".one_graph",
    "write": ".files",
}


def __getattr__(name: str) -> Any:
    """Names load on first use: a reduced script needs little of what reads a run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
