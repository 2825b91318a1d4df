"""Tensors that an optimizer updates, from tables: the same as `replicas` finds in memory."""

from __future__ import annotations

from collections.abc import Sequence

from kernelscope.analysis.ranks.replicas import (
    BEGAN_UNLIKE,
    OTHER_NUMBERS,
    Replicas,
    WrongUpdate,
    began_unlike,
    drifted_apart,
    wrong_updates,
)

from .dataset import Dataset


def replicas_in_tables(tables: Dataset, ranks: Sequence[int]) -> Replicas:
    if "updates" in tables.missing:
        return Replicas()
    of_all = {"ranks": len(ranks)}
    tables.execute(
        "CREATE OR REPLACE TEMP TABLE owned AS SELECT kind, number, min(first) = max(first) AS is_alike "
        "FROM updates GROUP BY kind, number HAVING count(DISTINCT rank) = $ranks",
        of_all,
    )
    # The first step that all ranks have after which a tensor is not the same on all of them.
    tables.execute(
        "CREATE OR REPLACE TEMP TABLE drifted AS SELECT kind, number, min(step) AS step FROM ("
        "SELECT kind, number, step FROM updates SEMI JOIN (SELECT * FROM owned WHERE is_alike) "
        "USING (kind, number) GROUP BY kind, number, step "
        'HAVING count(DISTINCT rank) = $ranks AND min("after") <> max("after")) GROUP BY kind, number',
        of_all,
    )
    if "numbers" not in tables.missing and (wrong := _wrong(tables, ranks)):
        return Replicas(wrong)
    [(own, alike)] = tables.rows("SELECT count(*), count(*) FILTER (WHERE is_alike) FROM owned")
    notes = (began_unlike(own - alike, own),) if alike < own else ()
    places = tables.dictionaries(
        'SELECT "index", argument, kernel_name, origin, step, (SELECT count(*) FROM drifted) AS n '
        "FROM updates SEMI JOIN drifted USING (kind, number, step) WHERE rank = $first "
        'ORDER BY step, "index", kind, number LIMIT 1',
        {"first": min(ranks)},
    )
    told = [drifted_apart(place["n"], alike, place["step"], place, min(ranks)) for place in places]
    return Replicas(open_question=told[0] if told else "", notes=notes)


def _wrong(tables: Dataset, ranks: Sequence[int]) -> tuple[WrongUpdate, ...]:
    """The first tensor that began alike and was given other numbers, or else one that began unlike."""
    same_given = "min(given) = max(given)"
    numbers = (
        "SELECT kind, number, step FROM updates SEMI JOIN drifted USING (kind, number, step) "
        f"GROUP BY kind, number, step HAVING {same_given} AND min(numbers) <> max(numbers)"
    )
    unlike = (
        "SELECT kind, number, min(step) AS step FROM ("
        f"SELECT kind, number, step, {same_given} AS is_same, min(given) AS given FROM updates "
        "SEMI JOIN (SELECT * FROM owned WHERE NOT is_alike) USING (kind, number) "
        f"GROUP BY kind, number, step HAVING count(DISTINCT rank) = {len(ranks)}"
        ") GROUP BY kind, number HAVING bool_and(is_same) AND count(DISTINCT given) > 1"
    )
    for chosen, column, reason in ((numbers, "numbers", OTHER_NUMBERS), (unlike, "first", BEGAN_UNLIKE)):
        found = tables.dictionaries(
            f'SELECT kind, number, step, rank, "index", argument, {column} AS value FROM updates '
            f'SEMI JOIN ({chosen}) USING (kind, number, step) ORDER BY step, rank, "index"'
        )
        rows = list(found)
        if rows:
            first = rows[0]
            same = [row for row in rows if all(row[k] == first[k] for k in ("kind", "number", "step"))]
            updates = {row["rank"]: (row["index"], row["argument"]) for row in same}
            return tuple(wrong_updates({row["rank"]: row["value"] for row in same}, updates, reason))
    return ()
