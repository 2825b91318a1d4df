"""Calls along time, lane by lane: one by one where they are few, otherwise counted in bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelscope.store.columns import Ints, numbers_of
from kernelscope.store.stored_run import StoredRun

Form = dict[str, Any]
FEW = 4000
_OPEN = -1  # what a call leaves open, its graph call says


class Moments:
    """When each call of a run began, how long it took, and where it ran; read once, for any part of it."""

    def __init__(self, run: StoredRun) -> None:
        database = run.database
        with database.understood():
            wanted = ("site", "start_ns", "ifnull(duration_ns, -1)", "ifnull(stream, -1)",
                      "ifnull(thread, -1)", "graph_call")  # fmt: skip
            self._id, self._site, self._start, self._time, stream, thread, graph_call = numbers_of(
                database, "calls", wanted
            )
            graphs, of_stream, of_thread = numbers_of(database, "graph_calls", ("stream", "thread"))
        self._stream = _completed(stream, graph_call, graphs, of_stream)
        self._thread = _completed(thread, graph_call, graphs, of_thread)
        self._end = self._start + np.maximum(self._time, 0)

    def between(self, begin: int | None, end: int | None, bins: int) -> Form:
        """Between two moments in nanoseconds; None is the first or the last."""
        if not len(self._id):
            return {"low": 0, "high": 0, "calls": [], "bins": []}
        low, high = int(self._start.min()), int(self._end.max())
        first, last = low if begin is None else begin, high if end is None else end
        here = np.flatnonzero((self._end >= first) & (self._start <= last))
        form: Form = {"low": low, "high": high, "calls": [], "bins": []}
        if len(here) <= FEW:
            return form | {"calls": self._each(here)}
        width = max(1, -(-(last - first + 1) // max(1, bins)))
        return form | {"bins": self._binned(here, first, width), "first": first, "width": width}

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
