"""The values inside compiled code: print them, save them, watch them, whatever kind of kernel it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .conditions import Condition, parse_watch
from .inductor_levels import IntermediateValueDebuggingLevel

if TYPE_CHECKING:
    from .hits import Hit as Hit
    from .hits import WatchHit as WatchHit
    from .session import observe as observe
    from .session import watch as watch

_HOMES = {"observe": ".session", "watch": ".session", "Hit": ".hits", "WatchHit": ".hits"}

__all__ = [
    "Condition",
    "Hit",
    "IntermediateValueDebuggingLevel",
    "WatchHit",
    "observe",
    "parse_watch",
    "watch",
]


def __getattr__(name: str) -> Any:
    # The rest needs torch, and the command line parses watches and levels without it.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
