"""What an entry of Inductor's pattern matcher is called, and where it stands."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def pattern_name(entry: Any) -> str:
    """Of a replacement the function that shows what is searched; else the one that rewrites the graph."""
    handler = getattr(entry, "handler", None)
    if handler is not None:
        return named(handler)
    inner = _closure(getattr(entry, "extra_check", None))
    searched, replaced = inner.get("search_fn"), inner.get("replace_fn")
    own = str(getattr(entry, "pattern_name", "") or "")
    if searched is None:
        return own or type(entry).__name__
    by = f", replaced by {plain_name(replaced)}" if replaced is not None else ""
    return f"{named(searched)}{by}"


def named(function: Any) -> str:
    """`addmm_fuse_pattern_second (torch/_inductor/fx_passes/…py:12)`."""
    inner = _inner(function)
    code = getattr(inner, "__code__", None)
    where = f" ({_short(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
    return plain_name(inner) + where


def plain_name(function: Any) -> str:
    inner = _inner(function)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return str(name).replace("<locals>.", "")


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return inspect.unwrap(function) if callable(function) else function


def _closure(function: Any) -> dict[str, Any]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code is not None else (), cells or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _short(path: str) -> str:
    _, found, inside = path.rpartition("/site-packages/")
    return inside if found else path
