"""Who differs first, and where: the ranks of one run, by hashes alone."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kernelscope.model.run import Run

from .chosen import chosen_ranks, rechecks, summary
from .collective_order import CollectiveOrder
from .collective_results import result_deviations, unequal_results
from .constants import Constants, constant_deviations
from .contents import changed_memory, limit_note, rechecked
from .deviation import INPUTS, RanksResult
from .first_deviations import answer, take_out_the_programs_writes
from .random_numbers.generators import generator_notes, states_of
from .replicas import Replicas, Updates, replicas
from .same_inputs import SameInputs
from .sent.in_memory import SentValues
from .sql.dataset import is_dataset
from .step_table import StepTable, step_table


def ranks(run: str | os.PathLike[str] | Sequence[Run], only: Sequence[int] | None = None) -> RanksResult:
    """Which rank differs first from the others, at which step and kernel; false when all agree.

    `run` is a run that several ranks recorded, a list of the runs of its ranks, or the tables that
    `kernelscope export --parquet --ranks all` made of it, which DuckDB reads; `only` chooses ranks.
    They need hashes (values="hash"), and eager operators (ops="all") where collectives are eager.

    Example:
        result = kernelscope.ranks("train-1")
        print(result)
    """
    if isinstance(run, str | os.PathLike) and is_dataset(run):
        from .sql.compare import ranks_in_tables

        return ranks_in_tables(run, only)
    return ranks_by_step(run, only)[0]


def ranks_by_step(
    run: str | os.PathLike[str] | Sequence[Run], only: Sequence[int] | None = None
) -> tuple[RanksResult, StepTable]:
    """As `ranks`, with a table of ranks by steps."""
    chosen = chosen_ranks(run, only)
    loaded, notes = chosen.ranks, chosen.notes
    order = CollectiveOrder(loaded)
    notes += order.notes()
    same = SameInputs(loaded)
    unequal = unequal_results(loaded, order.meetings)
    sent = SentValues(loaded, order.meetings)
    undecided = [u for u in unequal if (u.meeting.group, u.meeting.number) not in sent.meetings]
    found = [
        *order.deviations(), *sent.deviations, *result_deviations(loaded, undecided), *same.deviations(),
    ]  # fmt: skip
    constants = {rank.number: Constants() for rank in loaded}
    updates = {rank.number: Updates(rank) for rank in loaded}
    for rank in loaded:
        found += [*changed_memory(rank, constants[rank.number], updates[rank.number]), *rechecked(rank)]
        notes += limit_note(rank.number, len(rank.columns))
    found += constant_deviations(loaded, {number: list(each) for number, each in constants.items()})
    checked = {
        "same_inputs": same.compared,
        "collectives": len(order.meetings),
        "sent": sent.compared,
        "rechecked": sum(rechecks(rank) for rank in loaded),
    }
    summaries = [summary(rank) for rank in loaded]
    own_writes = take_out_the_programs_writes(found, summaries)
    # What one rank computed wrongly makes replicas differ, too.
    updated = Replicas() if found else replicas(updates)
    notes += updated.notes
    by_number = {rank.number: rank for rank in loaded}
    found += [
        (rank := by_number[each.rank]).deviation(
            INPUTS, rank.position(each.index), each.reason, argument=each.argument, suspects=each.suspects,
            other_rank=each.other_rank, other_index=each.other_index,
        )
        for each in updated.wrong
    ]  # fmt: skip
    notes += generator_notes({rank.number: states_of(rank) for rank in loaded})
    notes += own_writes
    result = answer(summaries, chosen.world_size, found, checked, notes, updated.open_question)
    return result, step_table(loaded, unequal, found)
