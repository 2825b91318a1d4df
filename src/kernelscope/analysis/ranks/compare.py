"""Who differs first, and where: the ranks of one run, by hashes alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from kernelscope.errors import RunError
from kernelscope.model.run import Run
from kernelscope.store.ranks.rank_parts import RankParts, rank_parts
from kernelscope.store.stored_run import StoredRun

from .collective_order import CollectiveOrder
from .collective_results import result_deviations, unequal_results
from .contents import MOST_CALLS, changed_memory, rechecked
from .deviation import CHANGED, COMPUTED, RECHECK, Deviation, RanksResult, RankSummary
from .rank import Rank
from .same_inputs import SameInputs
from .step_table import StepTable, step_table

_RECORD = "record with --values hash --ops all"
_FROM_ONE_CAUSE = {CHANGED: 0, RECHECK: 1, COMPUTED: 2}


def ranks(run: str | os.PathLike[str] | Sequence[Run], only: Sequence[int] | None = None) -> RanksResult:
    """Which rank differs first from the others, at which step and kernel; false when all agree.

    `run` is a run that several ranks recorded, or a list of the runs of its ranks; `only` chooses ranks.
    They need hashes (values="hash"), and eager operators (ops="all") where collectives are eager.

    Example:
        result = kernelscope.ranks("train-1")
        print(result)
    """
    return ranks_by_step(run, only)[0]


def ranks_by_step(
    run: str | os.PathLike[str] | Sequence[Run], only: Sequence[int] | None = None
) -> tuple[RanksResult, StepTable]:
    """As `ranks`, with a table of ranks by steps."""
    parts = _parts(run)
    chosen = {n: r for n, r in parts.runs.items() if only is None or n in only}
    if unknown := [n for n in only or () if n not in parts.runs]:
        known = ", ".join(map(str, parts.runs))
        raise RunError(f"{parts.root} has no rank {unknown[0]}; it has {known}")
    notes = list(parts.notes)
    if parts.missing and only is None:
        notes.append(f"{_listed(parts.missing)} missing: the others are compared")
    loaded = list(_usable(chosen, notes))
    if len(loaded) < 2:
        raise RunError(
            f"{parts.root}: there are not two ranks to compare: "
            + ("; ".join(notes) or "only one was chosen")
        )
    _note_unlike(loaded, notes)
    order = CollectiveOrder(loaded)
    notes += order.notes()
    same = SameInputs(loaded)
    unequal = unequal_results(loaded, order.meetings)
    found = [*order.deviations(), *result_deviations(loaded, unequal), *same.deviations()]
    for rank in loaded:
        found += [*changed_memory(rank), *rechecked(rank)]
        if len(rank.columns) > MOST_CALLS:
            notes.append(
                f"rank {rank.number} has more than {MOST_CALLS} calls: memory between calls was not checked"
            )
    found.sort(key=lambda d: (*d.order, _FROM_ONE_CAUSE.get(d.kind, 3)))
    firsts: dict[int, Deviation] = {}
    for each in found:
        firsts.setdefault(each.rank, each)
    checked = {
        "same_inputs": same.compared,
        "collectives": len(order.meetings),
        "rechecked": sum(_rechecks(rank) for rank in loaded),
    }
    listed = sorted(firsts.values(), key=lambda d: (d.order, _FROM_ONE_CAUSE.get(d.kind, 3)))
    summaries = tuple(_summary(rank) for rank in loaded)
    result = RanksResult(summaries, parts.world_size, tuple(listed), len(found), checked, tuple(notes))
    return result, step_table(loaded, unequal, found)


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
                last = run.select(first=len(run) - 1, limit=1)
                where = (
                    f"; its last call is {last[0].index}, {last[0].kernel_name}, step {last[0].step}"
                    if last
                    else ""
                )
                notes.append(f"rank {number} did not end normally, or still runs{where}")
            yield rank


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
    if not any(rank.collectives for rank in loaded):
        notes.append(f"no rank has a recorded collective, so nothing ties their orders together; {_RECORD}")


def _files(rank: Rank) -> set[str]:
    return {os.path.basename(s.origin[0].file) for s in rank.columns.sites.values() if s.origin} or {""}


def _summary(rank: Rank) -> RankSummary:
    info, columns = rank.run.info, rank.columns
    assert isinstance(rank.run, StoredRun)
    steps = len(set(columns.step.tolist()))
    return RankSummary(
        info.rank, info.local_rank, info.host, rank.run.path.name, len(columns), steps, len(rank.collectives),
        info.versions.get("torch", ""), rank.run.is_closed,
    )  # fmt: skip


def _rechecks(rank: Rank) -> int:
    assert isinstance(rank.run, StoredRun)
    found = rank.run.metadata.get("recheck", {})
    calls = found.get("calls", 0) if isinstance(found, dict) else 0
    return calls if isinstance(calls, int) else 0


def _listed(missing: Sequence[int]) -> str:
    if len(missing) == 1:
        return f"rank {missing[0]} is"
    shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return f"ranks {shown} are"
