"""Standalone scripts from a recorded call or graph: writing them needs no torch, running them no more."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .call_script import call_script as call_script
    from .composing import Script as Script
    from .files import write as write
    from .graph_script import graph_script as graph_script

_HOMES = {
    "Script": ".composing",
    "call_script": ".call_script",
    "graph_script": ".graph_script",
    "write": ".files",
}


def __getattr__(name: str) -> Any:
    """Names load on first use: a reduced script needs little of what reads a run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


class _Package(ModuleType):
    """Some functions are called as the modules that they are in, which importing would put in their place."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_home = isinstance(value, ModuleType) and _HOMES.get(name) == f".{name}"
        super().__setattr__(name, getattr(value, name) if is_home else value)


sys.modules[__name__].__class__ = _Package
