"""Steps, graph calls and calls along time: one by one where they are few, otherwise counted together."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelscope.store.columns import Ints, numbers_of
from kernelscope.store.stored_run import StoredRun

Form = dict[str, Any]
FEW = 4000
_FEW_GRAPHS = 1500
_FEW_STEPS = 300
_OPEN = -1  # what a call leaves open, its graph call says


class Moments:
    """When each call of a run began, how long it took, and where it ran; read once, for any part of it."""

    def __init__(self, run: StoredRun) -> None:
        database = run.database
        with database.understood():
            wanted = ("site", "start_ns", "ifnull(duration_ns, -1)", "ifnull(stream, -1)",
                      "ifnull(thread, -1)", "ifnull(step, -1)", "graph_call")  # fmt: skip
            self._id, self._site, self._start, self._time, stream, thread, step, graph_call = numbers_of(
                database, "calls", wanted
            )
            graphs, of_stream, of_thread, of_step, graph = numbers_of(
                database, "graph_calls", ("stream", "thread", "step", "graph")
            )
        self._stream = _completed(stream, graph_call, graphs, of_stream)
        self._thread = _completed(thread, graph_call, graphs, of_thread)
        self._end = self._start + np.maximum(self._time, 0)
        self._steps = self._spans(_completed(step, graph_call, graphs, of_step))
        self._graph_calls = self._spans(np.where(np.isin(graph_call, graphs), graph_call, _OPEN))
        at = np.searchsorted(graphs, self._graph_calls[0])
        self._graph_calls = (*self._graph_calls, graph[at], of_step[at])

    def _spans(self, of: Ints) -> tuple[Ints, ...]:
        """What calls belong to, where they belong to something, with its beginning and its end in time."""
        order = np.argsort(of, kind="stable")
        order = order[of[order] != _OPEN]
        if not len(order):
            return (order,) * 3
        first = np.flatnonzero(np.r_[True, of[order][1:] != of[order][:-1]])
        return (
            of[order][first],
            np.minimum.reduceat(self._start[order], first),
            np.maximum.reduceat(self._end[order], first),
        )

    def between(self, begin: int | None, end: int | None, bins: int) -> Form:
        """Between two moments in nanoseconds; None is the first or the last."""
        if not len(self._id):
            return {"low": 0, "high": 0, "calls": [], "bins": [], "graphs": [], "steps": []}
        low, high = int(self._start.min()), int(self._end.max())
        first, last = low if begin is None else begin, high if end is None else end
        here = np.flatnonzero((self._end >= first) & (self._start <= last))
        width = max(1, -(-(last - first + 1) // max(1, bins)))
        form: Form = {"low": low, "high": high, "calls": [], "bins": [], "steps": self._steps_in(first, last),
                      "graphs": self._graphs_in(first, last, width)}  # fmt: skip
        if len(here) <= FEW:
            return form | {"calls": self._each(here)}
        return form | {"bins": self._binned(here, first, width), "first": first, "width": width}

    def _steps_in(self, first: int, last: int) -> list[list[int]]:
        """First and last step, beginning and end; so many steps together that few remain."""
        step, start, end = self._steps
        here = np.flatnonzero((end >= first) & (start <= last))
        together = max(1, -(-len(here) // _FEW_STEPS))
        parts = [here[at : at + together] for at in range(0, len(here), together)]
        return [[int(step[p[0]]), int(step[p[-1]]), int(start[p].min()), int(end[p].max())] for p in parts]

    def _graphs_in(self, first: int, last: int, width: int) -> list[list[int]]:
        """Graph call, graph, step, beginning, end, how many: those that begin together count as one."""
        call, start, end, graph, step = self._graph_calls
        here = np.flatnonzero((end >= first) & (start <= last))
        if len(here) <= _FEW_GRAPHS:
            columns = (call, graph, step, start, end, np.ones_like(call))
            return [list(map(int, row)) for row in zip(*(column[here] for column in columns), strict=True)]
        place = np.maximum(start[here] - first, 0) // width
        order = here[np.argsort(place, kind="stable")]
        parts = np.split(order, np.flatnonzero(np.diff(np.sort(place))) + 1)
        return [
            [*(int(of[p[0]]) for of in (call, graph, step)), int(start[p].min()), int(end[p].max()), len(p)]
            for p in parts
        ]

    def _each(self, here: Ints) -> list[list[Any]]:
        columns = (self._id, self._site, self._stream, self._thread, self._start, self._time)
        rows = np.stack([column[here] for column in columns], axis=1).tolist()
        return [[*row[:5], row[5] if row[5] >= 0 else None] for row in rows]

    def _binned(self, here: Ints, first: int, width: int) -> list[list[Any]]:
        """Stream, thread, bin, calls, nanoseconds (None: not measured), the first call."""
        lanes, lane = np.unique(
            np.stack([self._stream[here], self._thread[here]]), axis=1, return_inverse=True
        )
        place = np.maximum(self._start[here] - first, 0) // width
        wide = int(place.max()) + 1
        keys, at, counts = np.unique(lane * wide + place, return_index=True, return_counts=True)
        measured = np.bincount(
            np.searchsorted(keys, lane * wide + place), np.maximum(self._time[here], 0), len(keys)
        )
        return [
            [int(lanes[0, key // wide]), int(lanes[1, key // wide]), int(key % wide), int(n),
             int(busy) or None, int(self._id[here[index]])]
            for key, index, n, busy in zip(keys, at, counts, measured, strict=True)
        ]  # fmt: skip


def _completed(given: Ints, graph_call: Ints, graphs: Ints, of_graphs: Ints) -> Ints:
    found = given.copy()
    missing = np.flatnonzero(given == _OPEN)
    if len(graphs):
        at = np.minimum(np.searchsorted(graphs, graph_call[missing]), len(graphs) - 1)
        known = graphs[at] == graph_call[missing]
        found[missing[known]] = of_graphs[at[known]]
    found[found == _OPEN] = 0
    return found
