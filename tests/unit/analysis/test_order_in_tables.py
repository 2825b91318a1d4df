"""The order of collectives is the same from SQL over tables as from the ranks, on random programs."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelscope.analysis.ranks.collective_order import CollectiveOrder, numbered
from kernelscope.analysis.ranks.sql.dataset import ABOUT, BY_RANK, BY_STEPS, FORMAT, VERSION, opened
from kernelscope.analysis.ranks.sql.meetings import Meetings
from kernelscope.analysis.ranks.sql.rank_tables import COLLECTIVES, HASHES, RANKS, blocks, meeting_word
from kernelscope.export.parquet_tables import Tables

CALLS = 40


def ranks_of(seed: int) -> list[Any]:
    """Ranks with groups of several sizes; some skip a collective, so that others wait in vain."""
    chance = Random(seed)
    size = chance.choice([2, 4, 6])
    groups = {"world": tuple(range(size)), "even": tuple(range(0, size, 2)), "odd": tuple(range(1, size, 2))}
    program = [chance.choice(list(groups)) for _ in range(12)]
    ranks = []
    for number in range(size):
        own = [name for name in program if number in groups[name]]
        if seed % 3 == 0 and number == size - 1 and own:
            own.pop(chance.randrange(len(own)))
        at = sorted(chance.sample(range(CALLS), len(own)))
        known = {name: members for name, members in groups.items() if number in members}
        rank: Any = SimpleNamespace(number=number, groups=known, levels=np.zeros(CALLS, np.int64))
        rank.collectives = list(zip(at, own, strict=True))
        rank.at = lambda position: SimpleNamespace(index=position, kernel_name="c10d.allreduce_")
        ranks.append(rank)
    return ranks


def write(folder: Path, ranks: list[Any]) -> None:
    tables = Tables()
    about = {"format": FORMAT, "version": VERSION, "world_size": len(ranks), "notes": []}
    (folder / ABOUT).write_text(json.dumps(about))
    tables.write(folder / "ranks.parquet", RANKS, [])
    for rank in ranks:
        rows = [
            {
                "index": position, "step": 0, "kernel_name": "c10d.allreduce_", "meeting": meeting_word(key),
                "process_group": key[0], "members": ",".join(map(str, key[1])), "number": key[2],
            }
            for position, key in numbered(rank)
        ]  # fmt: skip
        for table in (*BY_RANK, *BY_STEPS):
            below = folder / table / f"rank={rank.number}" / ("steps=0-0" if table in BY_STEPS else "")
            below.mkdir(parents=True)
            schema = COLLECTIVES if table == "collectives" else HASHES
            tables.write(below / f"{table}.parquet", schema, rows if table == "collectives" else [])


@pytest.mark.parametrize("seed", range(8))
def test_levels_and_notes_are_those_of_the_ranks(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    ranks = ranks_of(seed)
    write(tmp_path, ranks)
    order = CollectiveOrder(ranks)
    with opened(tmp_path) as tables:
        meetings = Meetings(tables, [rank.number for rank in ranks])
        assert len(meetings) == len(order.meetings)
        assert list(meetings.notes()) == list(order.notes())
        assert bool(order.stuck) == (seed % 3 == 0)
        found = tables.rows('SELECT rank, "index", level FROM reached ORDER BY rank, "index"')
    levels = sorted((r, p, m.level) for m in order.meetings for r, p in m.positions.items())
    assert found == levels


def test_files_have_whole_steps_and_at_least_so_many_calls() -> None:
    step = np.array([0, 0, 1, 0, 1, 2, 2, 2, 3, 4, 4])  # another thread may still be in the step before
    found = list(blocks(SimpleNamespace(columns=SimpleNamespace(step=step)), least=4))  # type: ignore[arg-type]
    assert [(b.first, b.last, b.steps) for b in found] == [(0, 5, "0-1"), (5, 9, "2-3"), (9, 11, "4-4")]
