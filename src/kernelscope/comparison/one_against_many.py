"""A run of one process against a run of several ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kernelscope.analysis.random_operators import is_random
from kernelscope.analysis.sharding.explanation import explained
from kernelscope.analysis.sharding.mismatch import Mismatch
from kernelscope.analysis.sharding.observed import HASHES, STATISTICS
from kernelscope.analysis.sharding.part import Part
from kernelscope.analysis.sharding.result import ShardedResult
from kernelscope.analysis.sharding.search import Search
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.ranks.rank_parts import has_ranks, rank_parts
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.text.amounts import counted

from .operator_noise import is_elementwise, results_of, rounding_explains

_MOST_ALONE = 0.5  # of the calls up to a difference, or of all that lead to the gradients
_RECORD = "record both with --values save --ops all"


def diff_sharded(one: str | os.PathLike[str], many: str | os.PathLike[str]) -> ShardedResult:
    """The first call at which several ranks' values differ from those of one process; false without one.

    Both need saved values (values="save"), eager operators (ops="all"), and the same parameters and batch.

    Example:
        result = kernelscope.diff_sharded("one.kscope", "sharded.kscope")
        print(result)
    """
    alone, ranks, notes = _reference(folder.resolve(Path(one))), *_ranks(folder.resolve(Path(many)))
    search = Search(alone, ranks, rounding_explains, results_of, is_elementwise)
    mismatch = search.first_mismatch()
    if mismatch is None and not search.compared:
        raise RunError(_nothing_compared(search))
    failed = list(_failures(alone.run, [part.run for part in ranks]))
    if mismatch is None and failed:
        raise RunError(
            f"{failed[0]}; the {counted(search.compared, 'call')} compared before have no difference; "
            "fix that, and record again"
        )
    if why := _not_followed(search, mismatch):
        raise RunError(why)
    first = explained(search, mismatch) if mismatch is not None else None
    if mismatch is not None and is_random(mismatch.reference.kernel_name):
        raise RunError(
            f"the runs drew different random numbers at call {mismatch.reference.index}, "
            f"{mismatch.reference.kernel_name}: what follows cannot be compared; record both without dropout"
        )
    counts = Counter(str(each.layout) for each in search.layouts.values())
    unpaired, leading = search.alone()
    compared = {
        "reference_calls": len(alone.calls), "calls": search.compared, "declared": search.declared,
        "unpaired": search.unpaired, "without_values": search.without_values,
        "amplified": len(search.amplified), "leading_calls": leading, "leading_unpaired": unpaired,
    }  # fmt: skip
    return ShardedResult(first, len(ranks), compared, dict(counts), [*notes, *failed, *_notes(search)])


def _not_followed(search: Search, mismatch: Mismatch | None) -> str:
    """Where most calls have no counterpart, neither agreement nor a call to blame follows from the others.

    Compiled graphs of one process and of ranks may have other kernels, and DTensors leave no marks in them.
    """
    alone, out_of = search.alone(None if mismatch is None else mismatch.reference.index)
    if alone <= _MOST_ALONE * out_of:
        return ""
    calls = f"{alone:,} of the {counted(out_of, 'call')} of the run of one process"
    if mismatch is None:
        calls += " that lead to the gradients"
        then = "the other calls agree, but they are too few for a conclusion"
    else:
        call = mismatch.reference
        calls += f" before call {call.index}, {call.kernel_name},"
        then = "the values of that call differ, but an earlier call without a counterpart may be the cause"
    compiled = any(call.graph for call in search.reference.calls) or any(
        call.graph for call in search.ranks[0].calls
    )
    how = "; compiled kernels are compared by name: record both without torch.compile" if compiled else ""
    return f"not comparable: {calls} have no counterpart on the ranks; {then}{how}"


def _reference(path: Path) -> Part:
    if has_ranks(path):
        raise RunError(f"{path} was recorded by several ranks; the first run has to be that of one process")
    run = load(path)
    _check(run)
    return Part(run)


def _ranks(path: Path) -> tuple[list[Part], list[str]]:
    found = rank_parts(path)
    if found.missing:
        missing = ", ".join(map(str, found.missing[:8]))
        raise RunError(
            f"{path} lacks rank {missing} of {found.world_size}: a value needs all of its parts; "
            "record all ranks"
        )
    for run in found.runs.values():
        _check(run)
    return [Part(run) for run in found.runs.values()], list(found.notes)


def _check(run: StoredRun) -> None:
    if not len(run):
        raise RunError(f"{run.path} is empty: it has no calls to compare; {_RECORD}")
    if not run.has_tensors() and not run.has_hashes():
        raise RunError(f"{run.path} has no values, so nothing can be put together; {_RECORD}")


def _failures(alone: StoredRun, ranks: list[StoredRun]) -> Iterator[str]:
    """Programs that did not come to their end: what they did not compute cannot be compared."""
    for name, run in [("the run of one process", alone), *((f"rank {run.info.rank}", run) for run in ranks)]:
        if run.exception:
            yield f"{name} ended with an exception: {run.exception}"
        elif run.is_cut_off:
            yield f"{name} did not end normally, or still runs"


def _nothing_compared(search: Search) -> str:
    one, many = search.reference.run.path, search.ranks[0].run.path.parent
    if search.without_values:
        return f"{one} and {many} have no values of the same calls; {_RECORD}, with a larger --max-tensors"
    return f"{one} and {many} are runs of different programs: no call of one has a counterpart in the other"


def _notes(search: Search) -> Iterator[str]:
    if not any(part.dtensors for part in search.ranks):
        yield "the ranks have no DTensors: layouts were found by values alone"
    if statistics := len(search.by[STATISTICS]):
        yield (
            f"{counted(statistics, 'call')} compared by statistics, which cannot show along which dimension "
            f"a tensor is split, and show only the mean of a sum; {_RECORD} to compare elements"
        )
    if hashes := len(search.by[HASHES]):
        yield (
            f"{counted(hashes, 'call')} with hashes alone, which show whether values are equal, but not "
            f"whether they are close: {search.compared} were decided; record both with --values stats "
            "or --values save"
        )
    if search.without_values:
        count = counted(search.without_values, "call")
        missing = "their values were not recorded, or cannot decide"
        yield f"{count} of the run of one process not compared: {missing}"
    if search.unpaired:
        yield f"the ranks have no counterpart of {counted(search.unpaired, 'call')} of the run of one process"
    for call in search.undecided:
        yield f"call {call.index}, {call.kernel_name}, could not be run again to measure rounding"
