"""Modules of ours that are heavy and seldom used: what is to happen when one of them has been loaded."""

from __future__ import annotations

from collections.abc import Callable

# Each says at its end that it is `loaded`.
LATE = ("kernelscope.gcu.backend", "kernelscope.gcu.execution.executor")
_loaded: set[str] = set()
_waiting: dict[str, list[Callable[[], None]]] = {}


def when_loaded(module: str, do: Callable[[], None]) -> None:
    """At once, if it is not one of these or is there already."""
    if module not in LATE or module in _loaded:
        do()
    else:
        _waiting.setdefault(module, []).append(do)


def cancel(module: str, do: Callable[[], None]) -> None:
    waiting = _waiting.get(module, [])
    if do in waiting:
        waiting.remove(do)


def loaded(module: str) -> None:
    _loaded.add(module)
    for do in _waiting.pop(module, []):
        do()
