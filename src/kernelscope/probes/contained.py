"""Work of a hook inside a compiler: what fails in it is a finding, and never reaches the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .bus import BUS
from .own_work import own_fault


@contextmanager
def contained(doing: str) -> Iterator[None]:
    """`doing` completes the sentence "kernelscope failed while …"."""
    try:
        yield
    except Exception:
        BUS.finding(own_fault(doing))
