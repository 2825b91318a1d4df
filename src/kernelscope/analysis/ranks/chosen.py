"""Which ranks of a run can be compared, and what a reader must know about them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.model.collectives import is_between_two
from kernelscope.model.run import Run
from kernelscope.store.ranks.rank_parts import RankParts, rank_parts
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.operator_names import is_custom

from .deviation import RankSummary
from .rank import Rank, communicates

_RECORD = "record with --values hash --ops all"


@dataclass(frozen=True)
class Chosen:
    """The ranks that are compared."""

    root: Path
    world_size: int
    ranks: list[Rank]
    notes: list[str]


def chosen_ranks(run: str | os.PathLike[str] | Sequence[Run], only: Sequence[int] | None = None) -> Chosen:
    """The ranks of a run that have calls and hashes; why another one is left out is a note."""
    parts = _parts(run)
    refuse_unknown(str(parts.root), only, parts.runs)
    wanted = {n: r for n, r in parts.runs.items() if only is None or n in only}
    notes = list(parts.notes)
    if parts.missing and only is None:
        notes.append(f"{_listed(parts.missing)} missing: the others are compared")
    loaded = list(_usable(wanted, notes))
    if len(loaded) < 2:
        raise too_few(str(parts.root), notes)
    _note_unlike(loaded, notes)
    return Chosen(parts.root, parts.world_size, loaded, notes)


def refuse_unknown(root: str, only: Sequence[int] | None, known: Collection[int]) -> None:
    if unknown := [n for n in only or () if n not in known]:
        raise RunError(f"{root} has no rank {unknown[0]}; it has {', '.join(map(str, known))}")


def too_few(root: str, notes: Sequence[str]) -> RunError:
    why = "; ".join(notes) or "only one was chosen"
    return RunError(f"{root}: there are not two ranks to compare: {why}")


def _parts(run: str | os.PathLike[str] | Sequence[Run]) -> RankParts:
    if isinstance(run, str | os.PathLike):
        return rank_parts(os.fspath(run))
    stored = [each for each in run if isinstance(each, StoredRun)]
    if len(stored) != len(run) or not stored:
        raise RunError("ranks(…) takes a run on disk, or the loaded runs of its ranks")
    size = max(each.info.world_size for each in stored)
    return RankParts(stored[0].path.parent, {each.info.rank: each for each in stored}, size)


def _usable(chosen: dict[int, StoredRun], notes: list[str]) -> Iterator[Rank]:
    """The ranks that can be compared; why another one cannot is a note."""
    for number, run in chosen.items():
        try:
            rank = Rank(run)
        except RunError as error:
            notes.append(f"rank {number} could not be read, and was left out: {error}")
            continue
        if not len(rank.columns):
            notes.append(f"rank {number} has no calls, and was left out")
        elif not rank.columns.has_hashes:
            notes.append(f"rank {number} has no hashes, and was left out; {_RECORD}")
        else:
            if run.is_cut_off:
                notes.append(f"rank {number} did not end normally, or still runs{_last_call(run)}")
            elif run.exception:
                notes.append(f"rank {number} ended with an exception: {run.exception}")
            yield rank


def _last_call(run: StoredRun) -> str:
    last = run.select(first=len(run) - 1, limit=1)
    if not last:
        return ""
    # Of a call that was not written to the run before its process ended, only the step before is known.
    later = "" if last[0].post_hashes else " or later"
    return f"; its last call is {last[0].index}, {last[0].kernel_name}, step {last[0].step}{later}"


def _note_unlike(loaded: Sequence[Rank], notes: list[str]) -> None:
    """Ranks of different programs or versions; clocks only order what has no collective in between."""
    first = loaded[0]
    for rank in loaded[1:]:
        for name in ("torch", "cuda", "python", "kernelscope"):
            one, other = (r.run.info.versions.get(name) for r in (first, rank))
            if one != other:
                notes.append(f"rank {first.number} has {name} {one}, and rank {rank.number} {other}")
        if not _files(first) & _files(rank):
            notes.append(
                f"ranks {first.number} and {rank.number} ran different programs: no source file is in both"
            )
    if own := sorted({name for rank in loaded for name in _custom_operators(rank)}):
        shown = ", ".join(own[:3]) + (f" and {len(own) - 3} more" if len(own) > 3 else "")
        notes.append(
            f"results of custom operators were not compared between ranks, "
            f"because they may depend on the rank: {shown}"
        )
    sites = [site for rank in loaded for site in rank.columns.sites.values()]
    if any(communicates(site) and is_between_two(site.kernel.name) for site in sites):
        notes.append("what ranks sent to one another (send, recv) was not compared")
    if not any(rank.collectives for rank in loaded):
        told = "no rank has a recorded collective, so nothing ties their orders together"
        is_complete = all(rank.run.info.settings.get("ops") == "all" for rank in loaded)
        notes.append(told if is_complete else f"{told}; {_RECORD}")


def _custom_operators(rank: Rank) -> Iterator[str]:
    for site in rank.columns.sites.values():
        if is_custom(site.kernel.kind, site.kernel.name) and not communicates(site):
            yield site.kernel.name


def _files(rank: Rank) -> set[str]:
    return {os.path.basename(s.origin[0].file) for s in rank.columns.sites.values() if s.origin} or {""}


def summary(rank: Rank) -> RankSummary:
    info, columns = rank.run.info, rank.columns
    assert isinstance(rank.run, StoredRun)
    steps = len(set(columns.step.tolist()))
    return RankSummary(
        info.rank, info.local_rank, info.host, rank.run.path.name, len(columns), steps, len(rank.collectives),
        info.versions.get("torch", ""), rank.run.is_closed,
    )  # fmt: skip


def rechecks(rank: Rank) -> int:
    assert isinstance(rank.run, StoredRun)
    found = rank.run.metadata.get("recheck", {})
    calls = found.get("calls", 0) if isinstance(found, dict) else 0
    return calls if isinstance(calls, int) else 0


def _listed(missing: Sequence[int]) -> str:
    if len(missing) == 1:
        return f"rank {missing[0]} is"
    shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return f"ranks {shown} are"
