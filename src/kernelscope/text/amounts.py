"""Durations, sizes and counts as text."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """ "1.20 ms"; nothing for None."""
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def byte_size(count: int) -> str:
    """ "1.5 MB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def counted(number: int, what: str) -> str:
    """ "1 call", "2 calls"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def call_counts(calls: int, kernels: int, graphs: int) -> str:
    """Without the graphs, where calls have none: a crash leaves calls whose graph is not in the run."""
    found = f"{counted(calls, 'call')} of {counted(kernels, 'kernel')}"
    return found if calls and not graphs else f"{found} in {counted(graphs, 'graph')}"
