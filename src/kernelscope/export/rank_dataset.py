"""The ranks of a run as one dataset of Parquet tables, partitioned by rank and steps.

calls, arguments and hashes: TABLE/rank=0/steps=0-41/TABLE.parquet
the others, of a rank as a whole: TABLE/rank=0/TABLE.parquet
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from kernelscope.analysis.ranks.chosen import Chosen, chosen_ranks
from kernelscope.analysis.ranks.constants import Constants
from kernelscope.analysis.ranks.rank import Rank
from kernelscope.analysis.ranks.replicas import Updates
from kernelscope.analysis.ranks.sql.dataset import ABOUT, FORMAT, VERSION
from kernelscope.analysis.ranks.sql.rank_tables import (
    COLLECTIVES,
    CONSTANTS,
    DEVIATIONS,
    GENERATORS,
    HASHES,
    RANKS,
    UPDATES,
    Block,
    HashRows,
    blocks,
    collective_rows,
    constant_rows,
    deviation_rows,
    generator_rows,
    rank_row,
    update_rows,
)  # fmt: skip
from kernelscope.errors import RunError
from kernelscope.private_files import make_folder, write_text

from .output import STANDARD_OUTPUT, new_folder
from .parquet_tables import ARGUMENTS, CALLS, FINDINGS, GRAPHS, KERNELS, Tables, argument_rows, call_row

_ROWS = 5000  # calls in one group of rows


def export_ranks(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    only: Sequence[int] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Write the ranks of a run to a new folder; how many calls they have. `tell` gets a line per rank."""
    if Path(path) == STANDARD_OUTPUT:
        raise RunError("Parquet tables need a folder: give it a name with -o FOLDER")
    tables = Tables()
    chosen = chosen_ranks(run, only)
    count = 0
    with new_folder(Path(path)) as folder:
        for number, rank in enumerate(chosen.ranks, 1):
            _write_rank(tables, rank, folder)
            count += len(rank.columns)
            tell(f"rank {rank.number}: {len(rank.columns):,} calls, {number} of {len(chosen.ranks)} ranks")
        tables.write(folder / "ranks.parquet", RANKS, map(rank_row, chosen.ranks))
        write_text(folder / ABOUT, json.dumps(_about(chosen), indent=1) + "\n")
    return count


def _about(chosen: Chosen) -> dict[str, object]:
    return {
        "format": FORMAT, "version": VERSION, "run": chosen.root.name, "world_size": chosen.world_size,
        "notes": chosen.notes,
    }  # fmt: skip


def _write_rank(tables: Tables, rank: Rank, folder: Path) -> None:
    def file(table: str, block: Block | None = None) -> Path:
        below = folder / table / f"rank={rank.number}"
        below = below / f"steps={block.steps}" if block is not None else below
        return make_folder(below, exist_ok=True) / f"{table}.parquet"

    hashes = HashRows(rank)
    for block in blocks(rank):
        with (
            tables.open(file("calls", block), CALLS) as put_calls,
            tables.open(file("arguments", block), ARGUMENTS) as put_arguments,
            tables.open(file("hashes", block), HASHES) as put_hashes,
        ):
            for begin in range(block.first, block.last, _ROWS):
                page = rank.reader.between(begin, min(begin + _ROWS, block.last))
                put_calls([call_row(call) for call in page])
                put_arguments([row for call in page for row in argument_rows(call)])
                put_hashes(hashes.of(begin, page))
    run = rank.run
    tables.write(file("collectives"), COLLECTIVES, collective_rows(rank))
    constants, updates = Constants(), Updates(rank)
    tables.write(file("deviations"), DEVIATIONS, deviation_rows(rank, constants, updates))
    tables.write(file("constants"), CONSTANTS, constant_rows(constants))
    tables.write(file("updates"), UPDATES, update_rows(updates))
    tables.write(file("generators"), GENERATORS, generator_rows(rank))
    tables.write(file("kernels"), KERNELS, map(asdict, run.kernels))
    tables.write(file("graphs"), GRAPHS, map(asdict, run.graphs))
    tables.write(file("findings"), FINDINGS, map(asdict, run.noted_findings()))
