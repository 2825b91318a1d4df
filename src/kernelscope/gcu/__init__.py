"""The gcu backend: FX graph → DAG → Choreo DSL → C++ → shared library, every stage visible.

compiled = torch.compile(model, backend="gcu")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelscope.gcu.execution.program import Program as Program
    from kernelscope.gcu.execution.program import load as load

    from .backend import gcu as gcu

_HOMES = {
    "gcu": ".backend",
    "Program": ".execution.program",
    "load": ".execution.program",
    # For the programs that `graph_code` writes.
    "laid_out": ".execution.executor",
}

__all__ = ["Program", "gcu", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'kernelscope.gcu' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(import_module(_HOMES[name], __name__), name)
