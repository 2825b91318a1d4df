"""Packages that an integration needs and `pip install kernelscope` does not bring."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernelscope.errors import RunError


class MissingPackage(RunError, ImportError):
    """A package that an integration needs is not installed."""


def needed(module: str, extra: str, who: str) -> Any:
    """Import a module of another package; if the package is missing, say how to install it."""
    package = module.partition(".")[0]
    if find_spec(package) is None:
        raise MissingPackage(
            f"{who} needs {package}, which is not installed: pip install 'kernelscope[{extra}]'"
        )
    return import_module(module)
