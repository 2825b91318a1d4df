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
    word_of_scalars: Callable[[str], int],
    calls: tuple[Ints, Ints, Ints],
    words: tuple[Words, Words | None],
) -> None:
    """Fill in the words of calls that have a layout: what they left, and what they found.

    `values` has what slots hold, and `word_of_scalars` makes a word of the numbers that were passed; of each
    call there are the index, the layout or 0, and the first slot of its graph call or replay, or -1.
    """
    (index, layout, starts), (left, found) = calls, words
    failed = np.array([call for (call,) in database.rows("SELECT call FROM errors")], np.int64)
    order = np.argsort(layout, kind="stable")
    for row in database.table("layouts"):
        begin, end = np.searchsorted(layout, [row[0], row[0] + 1], sorter=order)
        every = order[begin:end]
        at = every[starts[every] >= 0]
        start = starts[at]
        layout_of_calls, over = codec.layout_of(row), ~np.isin(index[at], failed)
        before, after = layout_of_calls.pre, layout_of_calls.post
        left[at[over]] = _words(before if after is None else after, start[over], values, signatures)
        left[at[~over]] = _words(before, start[~over], values, signatures)
        if found is not None:
            found[at] = _words(before, start, values, signatures)
        if layout_of_calls.scalars:
            given = np.uint64(word_of_scalars(codec.to_json(layout_of_calls.scalars)))
            for words_of_calls in (left, found):
                if words_of_calls is not None:
                    words_of_calls[every] ^= given


def first_slots(database: DatabaseReader, index: Ints, graph_call: Ints, is_replayed: Ints) -> Ints:
    """Of each call, the first slot of its graph call, or of the replay that it is part of; -1 without one."""
    found = np.full(len(index), -1)
    planned = database.table("first_slots", "ORDER BY graph_call")
    if planned:
        graph_calls, slots = np.array(planned, np.int64).T
        place = np.minimum(np.searchsorted(graph_calls, graph_call), len(graph_calls) - 1)
        found = np.where(graph_calls[place] == graph_call, slots[place], found)
    replays = database.table("replays", "ORDER BY call")
    if replays:
        first, slots = np.array([(call, -1 if slot is None else slot) for call, slot in replays], np.int64).T
        place = np.searchsorted(first, index, side="right") - 1
        of_replay = np.where(place >= 0, slots[np.maximum(place, 0)], -1)
        found = np.where(is_replayed > 0, of_replay, found)
    return found


def _words(
    counted: Mapping[int, int] | None, start: Ints, values: Callable[[Ints], Words], signatures: Signatures
) -> Words:
    """One word for each call; its slots are counted from `start`."""
    counted = counted or {}
    positions = np.array(list(counted), np.int64)
    slots = np.array(list(counted.values()), np.int64)
    each = values((start[:, None] + slots).ravel())
    rows = np.repeat(np.arange(len(start)), len(positions))
    return signatures(rows, np.tile(positions, len(start)), each, len(start))
