"""A run: what was recorded, and how to look at it. Needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .call import KernelCall as KernelCall
    from .errors import RunError as RunError
    from .kinds import OperatorCall as OperatorCall
    from .kinds import TritonKernelCall as TritonKernelCall
    from .run import Run as Run
    from .stored import StoredRun as StoredRun
    from .stored import load as load

_HOMES = {
    "KernelCall": ".call",
    "OperatorCall": ".kinds",
    "Run": ".run",
    "RunError": ".errors",
    "StoredRun": ".stored",
    "TritonKernelCall": ".kinds",
    "load": ".stored",
}


def __getattr__(name: str) -> Any:
    """Names load on first use: the help of a command loads none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
