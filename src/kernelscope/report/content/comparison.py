"""Two runs side by side: which call is which, where they first differ, and by how much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope.analysis.alignment.align_calls import align
from kernelscope.analysis.alignment.aligned_calls import Alignment
from kernelscope.analysis.diff.saved_errors import saved_pairs
from kernelscope.analysis.diff.search import diff
from kernelscope.errors import RunError
from kernelscope.store.folder import TENSORS
from kernelscope.store.run_db.codec import to_json
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import read_tensor

from .pictures import difference
from .values import is_inside

Form = dict[str, Any]
SAME, OTHER_VALUES, ONLY_FIRST, ONLY_SECOND = range(4)


class Comparison:
    """The diff of two runs, worked out once."""

    def __init__(self, a: StoredRun, b: StoredRun) -> None:
        self.a, self.b = a, b
        self.divergence = diff(a, b)
        self._rows = _table(align(a, b))

    def about(self) -> Form:
        """The divergence as `kernelscope diff --json` tells it, the place of it, and pictures."""
        return {
            **json.loads(to_json(self.divergence.to_json())),  # infinities as text
            "text": str(self.divergence),
            "tensors": self._tensors(),
            **self._table_of(0, self._rows.shape[1]),
        }

    def whole(self, first: tuple[int, int], limit: int) -> Form:
        """For one file: with the rows of the calls that it holds, and how many others there are."""
        total = self._rows.shape[1]
        begin, end = self._held(first, limit) if limit else (0, total)
        held = self._table_of(begin, end)
        return (
            self.about() | held | {"rows": self.rows(begin, end - begin), "left_out": total - (end - begin)}
        )

    def first_calls(self, limit: int) -> tuple[int, int]:
        """Of both runs: where to begin, so that so many calls have the divergence among them."""
        d = self.divergence
        at = [d.index if index is None else index for index in (d.index_a, d.index_b)] if d else [0, 0]
        return tuple(max(0, i - limit // 2) if limit and i >= limit else 0 for i in at)  # type: ignore[return-value]

    def _held(self, first: tuple[int, int], limit: int) -> tuple[int, int]:
        """From the first to the last row with a call that a file holds."""
        sides = zip(self._rows[:2], first, strict=True)
        here = np.flatnonzero(np.any([(row >= at) & (row < at + limit) for row, at in sides], axis=0))
        return (int(here[0]), int(here[-1]) + 1) if len(here) else (0, 0)

    def _table_of(self, begin: int, end: int) -> Form:
        place = self._place()
        inside = place is not None and begin <= place < end
        return {
            "total": end - begin,
            "first": place - begin if place is not None and inside else None,
            "where": _strip(self._rows[2, begin:end]),
        }

    def rows(self, first: int, count: int) -> Form:
        a, b, state = self._rows[:, first : first + count]
        return {"first": first, "a": a.tolist(), "b": b.tolist(), "state": state.tolist()}

    def _place(self) -> int | None:
        d = self.divergence
        for column, index in ((0, d.index_a), (1, d.index_b)):
            if d and index is not None:
                at = np.flatnonzero(self._rows[column] == index)
                if len(at):
                    return int(at[0])
        return None

    def _tensors(self) -> list[Form]:
        d = self.divergence
        if not d or d.index_a is None or d.index_b is None:
            return []
        pairs = saved_pairs(d.differences, (self.a, d.index_a), (self.b, d.index_b))
        return [{"argument": e.argument, "moment": e.moment} | self._pair(*files) for e, *files in pairs]

    def _pair(self, file_a: Path, file_b: Path) -> Form:
        try:
            for run, file in ((self.a, file_a), (self.b, file_b)):
                if not is_inside(run, file.name) or file.parent != run.path / TENSORS:
                    return {"error": f"{file.name} is not a saved tensor of {run.path}"}
            return difference(read_tensor(file_a), read_tensor(file_b)) or {
                "error": "these tensors cannot be subtracted"
            }
        except RunError as error:
            return {"error": str(error)}


def _strip(state: Any, parts: int = 240) -> list[int]:
    """Along the table, the worst of each part: shows where the runs differ."""
    return [int(part.max()) for part in np.array_split(state, min(parts, len(state)) or 1) if len(part)]


def _table(alignment: Alignment) -> Any:
    """Three columns: the call in the first run, in the second (-1: none), and how they compare."""
    state = np.zeros(len(alignment), np.int64)
    state[alignment.different()] = OTHER_VALUES
    parts, at = [], 0
    of_a, of_b = alignment.columns_a.index, alignment.columns_b.index

    def pairs(first: int, last: int) -> Any:
        return np.stack([of_a[alignment.a[first:last]], of_b[alignment.b[first:last]], state[first:last]])

    def alone(calls: Any, row: int, kind: int) -> Any:
        block = np.full((3, len(calls)), -1)
        block[row], block[2] = calls, kind
        return block

    for gap in alignment.gaps:
        parts += [
            pairs(at, gap.before),
            alone(of_a[np.array(gap.a, np.int64)], 0, ONLY_FIRST),
            alone(of_b[np.array(gap.b, np.int64)], 1, ONLY_SECOND),
        ]
        at = gap.before
    return np.concatenate([*parts, pairs(at, len(alignment))], axis=1)
