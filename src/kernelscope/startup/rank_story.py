"""What the end of a run says where several ranks recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.reader import is_recording
from kernelscope.store.ranks.rank_parts import rank_parts
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of a run's parts are ranks; none, where one process recorded it."""

    parts: dict[Path, int]
    missing: tuple[int, ...] = ()
    running: tuple[int, ...] = ()  # the first rank may end before others
    have_hashes: bool = False

    def of(self, run: StoredRun) -> str:
        """ "rank 1: " for what comes from there."""
        return f"rank {self.parts[run.path]}: " if run.path in self.parts else ""

    def chosen(self, run: StoredRun) -> str:
        """The option that reads this part."""
        return f" --rank {self.parts[run.path]}" if run.path in self.parts else ""

    def recorded_by(self) -> str:
        """ "by 2 of 2 ranks", and what is missing."""
        size = len(self.parts) + len(self.missing)
        said = f" by {len(self.parts)} of {counted(size, 'rank')}"
        if self.missing:
            said += f", none by {_listed(self.missing)}"
        return f"{said}; {_listed(self.running)} still running" if self.running else said


def ranks_in(path: Path, runs: Sequence[StoredRun]) -> Ranks:
    if not any(run.info.world_size > 1 for run in runs):
        return Ranks({})
    try:
        found = rank_parts(path)
    except RunError:
        return Ranks({})
    parts = {run.path: rank for rank, run in found.runs.items()}
    running = tuple(rank for part, rank in parts.items() if is_recording(part / folder.FLIGHT))
    hashed = [run for run in found.runs.values() if run.info.settings.get("values", "off") != "off"]
    return Ranks(parts, tuple(found.missing), running, len(hashed) > 1)


def _listed(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
