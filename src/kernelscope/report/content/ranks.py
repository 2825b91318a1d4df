"""The ranks of a run on one page: which one differs first, where, and a table of ranks by steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.analysis.ranks.compare import ranks_by_step
from kernelscope.analysis.ranks.deviation import RanksResult
from kernelscope.analysis.ranks.step_table import StepTable
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.ranks.rank_parts import RankParts, rank_parts
from kernelscope.store.run_db.row_reader import DAMAGES

Form = dict[str, Any]
MOST_CALLS = 2_000_000  # of all ranks together, in a page that is written without being asked for ranks
_MOST_STEPS = 300  # columns of the table
_MOST_RANKS = 256  # rows


class RanksOfRun:
    """What `kernelscope ranks` says of a run; `only` chooses ranks."""

    def __init__(self, root: Path, only: Sequence[int] | None = None) -> None:
        self.root, self._only = root, only
        self._told: Form | None = None

    def about(self) -> Form:
        """The answer, or why there is none."""
        if self._told is None:
            self._told = self._compared()
        return self._told

    def in_a_file(self) -> Form:
        """The answer, unless the run is so long that comparing it should be asked for."""
        try:
            calls = sum(len(run) for run in rank_parts(self.root).runs.values())
        except RunError as error:
            return self._error(str(error))
        if calls > MOST_CALLS and self._only is None:
            what = f"the ranks have {calls:,} calls, and were not compared for this page"
            return self._error(f"{what}; choose some with --ranks, or use kernelscope ranks")
        return self.about()

    def _compared(self) -> Form:
        try:
            result, table = ranks_by_step(self.root, self._only)
        except RunError as error:
            return self._error(str(error))
        except DAMAGES as error:  # contents that we did not write
            return self._error(f"the ranks could not be compared: {type(error).__name__}: {error!s:.200}")
        form = {"error": "", "run": self._name, "status": result.status, "text": str(result)}
        return form | result.to_json() | {"table": _table(result, table)}

    def _error(self, text: str) -> Form:
        return {"error": text, "run": self._name}

    @property
    def _name(self) -> str:
        return self.root.name.removesuffix(folder.SUFFIX)


def ranks_of(root: Path, only: Sequence[int] | None = None) -> RanksOfRun | None:
    """None for a run of one process."""
    if only is None and not _has_ranks(root):
        return None
    return RanksOfRun(root, only)


def _has_ranks(root: Path) -> bool:
    try:
        found: RankParts = rank_parts(root)
    except RunError:
        return False
    return len(found.runs) > 1


def _table(result: RanksResult, table: StepTable) -> Form:
    """A part of it that has the first deviation, and the ranks that have one."""
    first = result.first
    column = table.steps.index(first.step) if first is not None and first.step in table.steps else 0
    begin = max(0, min(column - _MOST_STEPS // 2, len(table.steps) - _MOST_STEPS))
    form = table.to_json(begin, _MOST_STEPS)
    wrong = {each.rank for each in result.deviations}
    rows = sorted(range(len(table.ranks)), key=lambda row: (table.ranks[row] not in wrong, row))[:_MOST_RANKS]
    for name in ("ranks", "calls", "deviations", "sides"):
        form[name] = [form[name][row] for row in sorted(rows)]
    return form | {"ranks_of": len(table.ranks)}
