"""Calls along time, lane by lane: one by one where they are few, otherwise counted in bins."""

from __future__ import annotations

from typing import Any

from ..run import StoredRun

Form = dict[str, Any]
FEW = 4000
_LANE = "coalesce(c.stream, g.stream, 0), coalesce(c.thread, g.thread, 0)"
_FROM = "FROM calls c LEFT JOIN graph_calls g ON g.id = c.graph_call"
_WITHIN = "WHERE c.start_ns + coalesce(c.duration_ns, 0) >= ? AND c.start_ns <= ?"


def timeline(run: StoredRun, begin: int | None, end: int | None, bins: int) -> Form:
    """Between two moments in nanoseconds; None is the run's first or last."""
    ask = run._database.rows
    with run._database.understood():
        [(low, high)] = ask("SELECT min(start_ns), max(start_ns + coalesce(duration_ns, 0)) FROM calls")
        if low is None:
            return {"low": 0, "high": 0, "calls": [], "bins": []}
        first, last = begin if begin is not None else low, end if end is not None else high
        [(count,)] = ask(f"SELECT count(*) FROM calls c {_WITHIN}", (first, last))
        if count <= FEW:
            columns = f"c.id, c.site, {_LANE}, c.start_ns, c.duration_ns"
            found = ask(f"SELECT {columns} {_FROM} {_WITHIN} ORDER BY c.id", (first, last))
            return {"low": low, "high": high, "calls": [list(row) for row in found], "bins": []}
        width = max(1, -(-(last - first + 1) // max(1, bins)))
        found = ask(
            f"SELECT {_LANE}, (c.start_ns - ?) / ?, count(*), sum(c.duration_ns), min(c.id) "
            f"{_FROM} {_WITHIN} GROUP BY 1, 2, 3",
            (first, width, first, last),
        )
        return {"low": low, "high": high, "calls": [], "bins": [list(row) for row in found],
                "first": first, "width": width}  # fmt: skip
