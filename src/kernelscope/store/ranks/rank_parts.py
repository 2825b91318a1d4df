"""Which part of a run was recorded by which rank, whatever its folder is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun, load

_MOST_RANKS = 1 << 20  # more than that are not a cluster, but a damaged file
_ATTEMPT = re.compile(r"rank-\d+-(\d+)")


@dataclass(frozen=True, slots=True)
class RankParts:
    """The ranks of a run, and what could not be read of it."""

    root: Path
    runs: dict[int, StoredRun]  # by rank, in order
    world_size: int
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[int]:
        """Ranks that the program had and the run does not."""
        return [rank for rank in range(self.world_size) if rank not in self.runs]


def rank_parts(path: str | Path) -> RankParts:
    """Every rank of a run that can be read; a part that is damaged is a note."""
    root = folder.resolve(path)
    found: list[StoredRun] = []
    notes: list[str] = []
    for part in folder.parts(root):
        try:
            found.append(_plausible(StoredRun(part)))
        except RunError as error:
            notes.append(f"{part.name} could not be read, and was left out: {error}")
    ranked = [run for run in found if run.info.world_size > 1]
    if not ranked:
        raise RunError(_no_ranks(root, notes))
    own = {run.info.pid for run in ranked}
    children = [run for run in ranked if run.info.parent_pid in own]
    runs: dict[int, StoredRun] = {}
    for run in sorted((run for run in ranked if run not in children), key=_attempt):
        before = runs.get(run.info.rank)
        if before is not None and _ran_beside(run, before):
            continue
        runs[run.info.rank] = run
        if before is not None:
            names = f"{run.path.name} is read, not {before.path.name}"
            notes.append(f"rank {run.info.rank} was started more than once: {names}")
    size = max(run.info.world_size for run in runs.values())
    return RankParts(root, dict(sorted(runs.items())), size, tuple(notes))


def has_ranks(path: str | Path) -> bool:
    """Whether several ranks recorded it."""
    try:
        return bool(rank_parts(path).runs)
    except RunError:
        return False


def _plausible(run: StoredRun) -> StoredRun:
    rank, ranks = run.info.rank, run.info.world_size
    if ranks > 1 and not 0 <= rank < ranks <= _MOST_RANKS:
        raise RunError(f"{run.path} is damaged: it says that it is rank {rank!s:.20} of {ranks!s:.20}")
    return run


def load_rank(path: str | Path, rank: int) -> StoredRun:
    """What one rank recorded."""
    root = folder.resolve(path)
    if (root / f"rank-{rank}" / folder.DATABASE).is_file() and not list(root.glob(f"rank-{rank}-*")):
        return load(root, part=f"rank-{rank}")
    runs = rank_parts(root).runs
    if rank not in runs:
        known = ", ".join(map(str, runs))
        raise RunError(f"{root} has no rank {rank}; it has {known}")
    return runs[rank]


def parse_ranks(text: str) -> list[int]:
    """ "0-3,7" is 0, 1, 2, 3 and 7. ValueError for anything else."""
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text!r:.40} is not a list of ranks; write 0-7 or 0,3")
        end = int(last) if dash else int(first)
        if end < int(first) or end - int(first) > 1_000_000:
            raise ValueError(f"{piece!r:.40} is not a range of ranks; write 0-7")
        found += range(int(first), end + 1)
    return list(dict.fromkeys(found))


def _ran_beside(run: StoredRun, rank: StoredRun) -> bool:
    """Whether it began before the rank had ended: then it is not the rank started again, but its helper."""
    ended = rank.metadata.get("ended_ns")
    return isinstance(ended, int) and rank.info.realtime_ns <= run.info.realtime_ns < ended


def _attempt(run: StoredRun) -> tuple[int, int]:
    named = _ATTEMPT.fullmatch(run.path.name)
    return (int(named[1]) if named else 1), run.info.realtime_ns


def _no_ranks(root: Path, notes: list[str]) -> str:
    why = "; ".join(notes) if notes else "it was recorded by one process"
    record = "kernelscope run --values hash --ops all -m torch.distributed.run …"
    return f"{root} has no ranks: {why}; record with: {record}"
