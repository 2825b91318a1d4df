"""The smallest graph that still fails in the same way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import reduce as reduce
    from .reducer import Reduction as Reduction

_HOMES = {"reduce": ".api", "Reduction": ".reducer"}


def __getattr__(name: str) -> Any:
    # They need torch, and the command that waits for a search does without.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
