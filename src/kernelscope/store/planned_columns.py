"""What calls of planned graph calls found and left, as columns: by layout, all of its calls at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from kernelscope.store.run_db.row_reader import DatabaseReader

from .run_db import codec

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
LAYOUTS_SINCE = 5  # the schema
Signatures = Callable[[Ints, Ints, Words, int], Words]


def add_planned(
    database: DatabaseReader,
    values: Callable[[Ints], Words],
    signatures: Signatures,
    calls: tuple[Ints, Ints, Ints],
    words: tuple[Words, Words | None],
) -> None:
    """Fill in the words of calls that have a layout: what they left, and what they found.

    `values` has what slots hold; of each call there are the index, the graph call and the layout or 0.
    """
    (index, graph_call, layout), (left, found) = calls, words
    first = database.rows("SELECT graph_call, slot FROM first_slots ORDER BY 1")
    if not first:
        return
    graph_calls, slots = np.array(first, np.int64).T
    failed = np.array([call for (call,) in database.rows("SELECT call FROM errors")], np.int64)
    order = np.argsort(layout, kind="stable")
    for row in database.table("layouts"):
        begin, end = np.searchsorted(layout, [row[0], row[0] + 1], sorter=order)
        at = order[begin:end]
        place = np.minimum(np.searchsorted(graph_calls, graph_call[at]), len(graph_calls) - 1)
        known = graph_calls[place] == graph_call[at]
        at, start = at[known], slots[place[known]]
        layout_of_calls, over = codec.layout_of(row), ~np.isin(index[at], failed)
        left[at[over]] = _words(layout_of_calls.post, start[over], values, signatures)
        left[at[~over]] = _words(layout_of_calls.pre, start[~over], values, signatures)
        if found is not None:
            found[at] = _words(layout_of_calls.pre, start, values, signatures)


def _words(
    counted: Mapping[int, int], start: Ints, values: Callable[[Ints], Words], signatures: Signatures
) -> Words:
    """One word for each call; its slots are counted from `start`."""
    positions = np.array(list(counted), np.int64)
    slots = np.array(list(counted.values()), np.int64)
    each = values((start[:, None] + slots).ravel())
    rows = np.repeat(np.arange(len(start)), len(positions))
    return signatures(rows, np.tile(positions, len(start)), each, len(start))
