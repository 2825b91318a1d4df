"""Two runs side by side: which call is which, where they first differ, and by how much."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..analysis.align import Alignment, align
from ..analysis.diff import diff
from ..run import StoredRun
from ..run.codec import to_json
from ..run.errors import RunError
from ..run.folder import TENSORS
from ..run.tensors import read_tensor
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
            "total": self._rows.shape[1],
            "first": self._place(),
            "where": self._where(),
            "tensors": self._tensors(),
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

    def _where(self, parts: int = 240) -> list[int]:
        """Along the table, the worst of each part: for a strip that shows where the runs differ."""
        state = self._rows[2]
        return [int(part.max()) for part in np.array_split(state, min(parts, len(state))) if len(part)]

    def _tensors(self) -> list[Form]:
        d = self.divergence
        if not d or d.index_a is None or d.index_b is None:
            return []
        kept_a, kept_b = self.a.saved_tensors(d.index_a), self.b.saved_tensors(d.index_b)
        found = []
        for each in d.differences:
            key, other = (each.position, each.moment), (each.position_b, each.moment)
            if each.what == "values" and key in kept_a and other in kept_b:
                form = self._pair(kept_a[key], kept_b[other])
                found.append({"argument": each.argument, "moment": each.moment} | form)
        return found

    def _pair(self, file_a: str, file_b: str) -> Form:
        try:
            for run, file in ((self.a, file_a), (self.b, file_b)):
                if not is_inside(run, file):
                    return {"error": f"{file} is no saved tensor of {run.path}"}
            a, b = read_tensor(self.a.path / TENSORS / file_a), read_tensor(self.b.path / TENSORS / file_b)
            return difference(a, b) or {"error": "these tensors cannot be subtracted"}
        except RunError as error:
            return {"error": str(error)}


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
            alone(of_a[gap.a.start : gap.a.stop], 0, ONLY_FIRST),
            alone(of_b[gap.b.start : gap.b.stop], 1, ONLY_SECOND),
        ]
        at = gap.before
    return np.concatenate([*parts, pairs(at, len(alignment))], axis=1)
