"""Calls of a run by their position, and the settings that held there."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from kernelscope.model.call import KernelCall
from kernelscope.model.kinds import view_of
from kernelscope.model.run import Run
from kernelscope.store.columns import Ints
from kernelscope.store.stored_run import StoredRun

SWITCHES = "switches"  # kind of the mark that tells of torch's switches


class Reader:
    """Few calls of a long run, without reading all of it."""

    def __init__(self, run: Run, indices: Ints) -> None:
        self.run = run
        self._indices = indices  # of each position; some may be missing in a run that keeps the last steps
        self._live = None if isinstance(run, StoredRun) else run.calls
        self._switches: list[tuple[int, dict[str, Any]]] | None = None

    def __len__(self) -> int:
        return len(self._indices)

    def at(self, position: int) -> KernelCall:
        return self.between(position, position + 1)[0]

    def between(self, first: int, last: int) -> list[KernelCall]:
        """The calls at positions from the first up to, not including, the last."""
        return self.many(range(max(first, 0), min(last, len(self))))

    def many(self, positions: Sequence[int]) -> list[KernelCall]:
        """The calls at these positions, in their order."""
        if self._live is not None:
            return [self._live[position] for position in positions]
        assert isinstance(self.run, StoredRun)
        indices = [int(self._indices[position]) for position in positions]
        records = {record.index: record for record in self.run.read_calls(indices)}
        return [view_of(self.run, records[index]) for index in indices if index in records]

    def switches(self, call: KernelCall) -> dict[str, Any]:
        """Torch's switches when this call was made; empty where they were not recorded."""
        if self._switches is None:
            marks = [mark for mark in self.run.marks if mark.kind == SWITCHES]
            self._switches = [(mark.index, _parsed(mark.text)) for mark in marks]
        at = bisect_right([index for index, _ in self._switches], call.index)
        return self._switches[at - 1][1] if at else {}


def _parsed(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
