"""The notes on tensors that an optimizer updates, from tables: the same as `replicas` has them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelscope.analysis.ranks.replicas import began_unlike, drifted_apart

from .dataset import Dataset


def notes_on_replicas(tables: Dataset, ranks: Sequence[int]) -> Iterator[str]:
    of_all = {"ranks": len(ranks)}
    tables.execute(
        "CREATE OR REPLACE TEMP TABLE owned AS SELECT kind, number, min(first) = max(first) AS is_alike "
        "FROM updates GROUP BY kind, number HAVING count(DISTINCT rank) = $ranks",
        of_all,
    )
    [(own, alike)] = tables.rows("SELECT count(*), count(*) FILTER (WHERE is_alike) FROM owned")
    if alike < own:
        yield began_unlike(own - alike, own)
    # The first step that all ranks have after which a tensor is not the same on all of them.
    tables.execute(
        "CREATE OR REPLACE TEMP TABLE drifted AS SELECT kind, number, min(step) AS step FROM ("
        "SELECT kind, number, step FROM updates SEMI JOIN (SELECT * FROM owned WHERE is_alike) "
        "USING (kind, number) GROUP BY kind, number, step "
        'HAVING count(DISTINCT rank) = $ranks AND min("after") <> max("after")) GROUP BY kind, number',
        of_all,
    )
    places = tables.dictionaries(
        'SELECT "index", argument, kernel_name, origin, step, (SELECT count(*) FROM drifted) AS n '
        "FROM updates SEMI JOIN drifted USING (kind, number, step) WHERE rank = $first "
        'ORDER BY step, "index" LIMIT 1',
        {"first": min(ranks)},
    )
    for place in places:
        yield drifted_apart(place["n"], alike, place["step"], place, min(ranks))
