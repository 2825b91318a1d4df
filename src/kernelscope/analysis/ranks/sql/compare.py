"""Which rank differs first, from tables: the answer of `ranks`, for runs that do not fit into memory."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from kernelscope.analysis.ranks.chosen import refuse_unknown, too_few
from kernelscope.analysis.ranks.constants import Constant, changed_constants
from kernelscope.analysis.ranks.contents import limit_note
from kernelscope.analysis.ranks.deviation import (
    CHANGED,
    COMPUTED,
    INPUTS,
    Deviation,
    RanksResult,
    RankSummary,
)
from kernelscope.analysis.ranks.first_deviations import answer, take_out_the_programs_writes
from kernelscope.analysis.ranks.random_numbers.generators import States, generator_notes
from kernelscope.analysis.ranks.replicas import Replicas
from kernelscope.analysis.ranks.same_inputs import MOST_OF_A_KERNEL, beside, computed_reason, suspects
from kernelscope.analysis.ranks.votes import vote
from kernelscope.events import Frame

from .dataset import Dataset, opened
from .meetings import Found, Meetings
from .replicas import replicas_in_tables
from .sent_values import SentValues
from .shares import unlike_keys, unlike_keys_on_ray


def ranks_in_tables(
    path: str | os.PathLike[str],
    only: Sequence[int] | None = None,
    *,
    engine: str = "duckdb",
    threads: int = 0,
    memory: float = 0,
) -> RanksResult:
    """`path` is a folder that `kernelscope export --parquet --ranks all` wrote; `memory` is in GB.

    With `engine="ray"` the tasks of a Ray cluster, or of this machine, read all calls; the rest is done here.
    """
    with opened(path, only, threads=threads, memory=memory) as tables:
        summaries, rechecked = _summaries(tables, only)
        numbers = [each.rank for each in summaries]
        if len(summaries) < 2:
            raise too_few(str(tables.root), tables.notes)
        meetings = Meetings(tables, numbers)
        notes = [*tables.notes, *meetings.notes()]
        for each in summaries:
            notes += limit_note(each.rank, each.calls)
        compared, unlike = unlike_keys_on_ray(tables, only) if engine == "ray" else unlike_keys(tables)
        sent = SentValues(tables)
        found = [
            *sent.deviations,
            *meetings.deviations(sent.meetings),
            *_computed(tables, unlike),
            *_alone(tables),
            *_constants(tables, numbers),
        ]
        checked = {"same_inputs": compared, "collectives": len(meetings)}
        checked |= {"sent": sent.compared, "rechecked": rechecked}
        hosts = {each.rank: each.host for each in summaries}
        deviations = _described(tables, found, hosts)
        own_writes = take_out_the_programs_writes(deviations, summaries)
        updated = Replicas() if deviations else replicas_in_tables(tables, numbers)  # as in memory
        notes += updated.notes
        wrong = [
            Found(INPUTS, w.rank, w.index, w.reason, w.argument, w.suspects, w.other_rank, w.other_index)
            for w in updated.wrong
        ]
        deviations += _described(tables, wrong, hosts)
        notes += [*generator_notes(_generators(tables, numbers)), *own_writes]
        return answer(summaries, tables.world_size, deviations, checked, notes, updated.open_question)


def _summaries(tables: Dataset, only: Sequence[int] | None) -> tuple[list[RankSummary], int]:
    names = RankSummary.__slots__
    rows = {row["rank"]: row for row in tables.dictionaries("SELECT * FROM ranks ORDER BY rank")}
    refuse_unknown(str(tables.root), only, rows)
    wanted = [row for rank, row in rows.items() if only is None or rank in only]
    rechecked = sum(row["rechecked"] for row in wanted)
    return [RankSummary(**{name: row[name] for name in names}) for row in wanted], rechecked


def _generators(tables: Dataset, numbers: Sequence[int]) -> dict[int, States]:
    found: dict[int, States] = {number: {} for number in numbers}
    if "generators" not in tables.missing:
        for rank, step, device, state in tables.rows("SELECT rank, step, device, state FROM generators"):
            found[rank].setdefault(step, {})[device] = state
    return found


def _alone(tables: Dataset) -> Iterator[Found]:
    """What is wrong on a rank, whatever the others did: found when it was exported."""
    for rank, index, kind, argument, reason in tables.rows(
        'SELECT rank, "index", kind, argument, reason FROM deviations ORDER BY rank, "index"'
    ):
        yield Found(kind, rank, index, reason, argument, (rank,))


def _constants(tables: Dataset, numbers: Sequence[int]) -> Iterator[Found]:
    """Inputs of compiled graphs that changed on one rank alone."""
    if "constants" in tables.missing:
        return
    ranks = {number: list[Constant]() for number in numbers}
    # Only what changed somewhere matters, and then what all ranks have of it.
    for row in tables.dictionaries(
        "SELECT * FROM constants WHERE key IN (SELECT key FROM constants WHERE changed IS NOT NULL)"
    ):
        ranks[row.pop("rank")].append(Constant(**row))
    for rank, constant, reason in changed_constants(ranks):
        assert constant.changed is not None
        yield Found(CHANGED, rank, constant.changed, reason, constant.argument, (rank,))


def _computed(tables: Dataset, unlike: list[int]) -> Iterator[Found]:
    """The same kernel with the same inputs, and another result."""
    if not unlike:
        return
    tables.keep("unlike", {"key": ("UBIGINT", unlike)})
    alignment = "settings" if "alignment" in tables.missing else "alignment"
    tables.execute(
        'CREATE OR REPLACE TEMP TABLE members AS SELECT key, base, rank, steps, step, "index", kernel_name, '
        f"result, settings, {alignment} AS alignment, is_known FROM hashes SEMI JOIN unlike USING (key)"
    )
    # The earliest of each kernel, so that one which always varies does not hide the others.
    tables.execute(
        "CREATE OR REPLACE TEMP TABLE wanted AS SELECT key FROM ("
        'SELECT key, min((step, "index")) AS place, arg_min(kernel_name, rank) AS name '
        "FROM members GROUP BY key) "
        f"QUALIFY row_number() OVER (PARTITION BY name ORDER BY place, key) <= {MOST_OF_A_KERNEL}"
    )
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in tables.dictionaries("SELECT * FROM members SEMI JOIN wanted USING (key) ORDER BY key, rank"):
        groups[row["key"]].append(row)
    for members in groups.values():
        yield from _judged(tables, members)


def _judged(tables: Dataset, members: list[dict[str, Any]]) -> Iterator[Found]:
    results = [each["result"] for each in members]
    decided = vote(results, lambda: _elsewhere(tables, members[0]))
    numbers = [each["rank"] for each in members]
    for place in decided.wrong:
        one, other = members[place], members[beside(results, decided, place)]
        if one["alignment"] != other["alignment"] or not one["is_known"]:
            continue
        is_same = one["settings"] == other["settings"]
        argument = _unlike_argument(_arguments(tables, one), _arguments(tables, other))
        if argument is not None:
            reason = computed_reason(one["rank"], other["rank"], other["index"], is_same=is_same)
            named = suspects(numbers, decided, place)
            yield Found(
                COMPUTED, one["rank"], one["index"], reason, argument, named, other["rank"], other["index"]
            )


def _elsewhere(tables: Dataset, member: dict[str, Any]) -> Counter[Any]:
    """What this kernel gave for these inputs at any time."""
    base = member["key"] if member["base"] is None else member["base"]
    rows = tables.rows(
        "SELECT result, count(*) FROM hashes WHERE key = $base OR base = $base GROUP BY result",
        {"base": base},
    )
    return Counter(dict(rows))


def _arguments(tables: Dataset, member: dict[str, Any]) -> dict[int, dict[str, Any]]:
    rows = tables.dictionaries(
        'SELECT "position", name, role, "before", "after" FROM arguments '
        'WHERE rank = $rank AND steps = $steps AND "call" = $call ORDER BY "position"',
        {"rank": member["rank"], "steps": member["steps"], "call": member["index"]},
    )
    return {row["position"]: row for row in rows}


def _unlike_argument(one: dict[int, dict[str, Any]], other: dict[int, dict[str, Any]]) -> str | None:
    """The first output whose values differ; as `compare` of two calls has it."""
    for position, row in one.items():
        beside = other.get(position)
        if beside is None or row["after"] is None or beside["after"] is None:
            continue
        is_written = any(
            each["role"] in ("out", "inout")
            or (each["before"] is not None and each["before"] != each["after"])
            for each in (row, beside)
        )
        if is_written and row["after"] != beside["after"]:
            return str(row["name"])
    return None


def _described(tables: Dataset, found: list[Found], hosts: dict[int, str]) -> list[Deviation]:
    """With the call's own facts, and how many collectives come before it."""
    if not found:
        return []
    tables.keep("places", {
        "rank": ("BIGINT", [f.rank for f in found]), "index": ("BIGINT", [f.index for f in found]),
    })  # fmt: skip
    tables.execute("CREATE OR REPLACE TEMP TABLE distinct_places AS SELECT DISTINCT * FROM places")
    levels = {
        (rank, index): level
        for rank, index, level in tables.rows(
            'SELECT p.rank, p."index", coalesce(r.level, 0) FROM distinct_places p ASOF LEFT JOIN reached r '
            'ON p.rank = r.rank AND p."index" > r."index"'
        )
    }
    ranks = ", ".join(map(str, sorted({f.rank for f in found})))
    calls = {
        (row["rank"], row["index"]): row
        for row in tables.dictionaries(
            'SELECT rank, "index", step, phase, kernel_name, file, line, "function", graph_name '
            f'FROM calls SEMI JOIN distinct_places USING (rank, "index") WHERE rank IN ({ranks})'
        )
    }
    return [_deviation(each, calls[each.rank, each.index], hosts, levels) for each in found]


def _deviation(
    found: Found, call: dict[str, Any], hosts: dict[int, str], levels: dict[tuple[int, int], int]
) -> Deviation:
    file = call["file"]
    origin = None if file is None else Frame(file, call["line"], call["function"] or "", is_foreign=True)
    return Deviation(
        kind=found.kind, rank=found.rank, host=hosts[found.rank], index=found.index, step=call["step"],
        phase=call["phase"], kernel_name=call["kernel_name"], argument=found.argument, origin=origin,
        graph=call["graph_name"] or "", reason=found.reason, suspects=found.suspects,
        other_rank=found.other_rank, other_index=found.other_index, level=levels[found.rank, found.index],
    )  # fmt: skip
