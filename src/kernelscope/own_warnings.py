"""Warnings that our own imports and calls cause: they are printed at most, never raised in the program."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RAISED, _PRINTED = "error", "default"


@contextmanager
def printed_at_most() -> Iterator[None]:
    """What the program makes an error of (`-W error`) is printed inside. Other programs see no change.

    For all threads, as every setting of `warnings`. Filters that a module adds while it is imported stay.
    """
    filters = _filters()
    changed = []
    for at, (action, *rest) in enumerate(filters):
        if action == _RAISED:
            changed.append(((_PRINTED, *rest), filters[at]))
            filters[at] = changed[-1][0]
    if not changed:
        yield
        return
    try:
        yield
    finally:
        now = _filters()  # another thread may have a copy in place, for a while
        for each in (filters, now) if now is not filters else (filters,):
            each[:] = [next((old for new, old in changed if new is entry), entry) for entry in each]
        with warnings.catch_warnings():
            """Python forgets at which lines it has printed: the program's own warning there is an error."""


def _filters() -> Any:
    """Those that apply here: from Python 3.14 on, a context may have its own."""
    of_context = getattr(warnings, "_get_filters", None)
    return warnings.filters if of_context is None else of_context()
