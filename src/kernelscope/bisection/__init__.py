"""Which part of the compiler makes a program fail, found by switching parts off."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .result import BisectResult as BisectResult
from .result import Cause as Cause

if TYPE_CHECKING:
    from .api import bisect as bisect


def __getattr__(name: str) -> Any:
    # It needs torch; the command line does not.
    if name == "bisect":
        return import_module(".api", __name__).bisect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
