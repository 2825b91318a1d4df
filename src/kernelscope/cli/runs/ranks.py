"""`kernelscope ranks`: which rank of a run differs first from the others, and where."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli.arguments import add_json, add_ranks, add_run_name, add_wide
from kernelscope.errors import RunError
from kernelscope.store import folder

if TYPE_CHECKING:
    from kernelscope.analysis.ranks.deviation import RanksResult

DESCRIPTION = "Compare the ranks of a run, and name the first call at which one differs from the others."
EPILOG = """\
examples:
  kernelscope ranks                          the newest run: which rank differs first, and where?
  kernelscope ranks train-1 --ranks 0-3      only these ranks
  kernelscope ranks --json | jq .first.kernel_name
  kernelscope ranks tables                   tables of export --parquet --ranks all, with DuckDB

Record with: kernelscope run --values hash --ops all -m torch.distributed.run …
With --recheck 1 each call is run again on the spot: this finds a wrong result from inputs of one rank alone.
Exit status: 0 the ranks agree, 1 one differs, 2 they could not be compared.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_name(parser)
    add_ranks(parser, "compare only these ranks")
    parser.add_argument(
        "--engine", choices=["numpy", "duckdb", "ray"],
        help="what compares: numpy in memory (default), SQL on DuckDB for runs of any size, or that on Ray",
    )  # fmt: skip
    add_json(parser, "ranks")
    add_wide(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.views import plain

    found = _compared(args)
    if args.json:
        plain.dump(found.to_json())
    else:
        print(found)
    return found.status


def _compared(args: argparse.Namespace) -> RanksResult:
    from kernelscope.analysis.ranks.compare import ranks
    from kernelscope.analysis.ranks.sql.compare import ranks_in_tables
    from kernelscope.analysis.ranks.sql.dataset import is_dataset, load_duckdb
    from kernelscope.processes.cluster.ray_cluster import require_ray

    only = args.ranks or None
    has_tables = args.run is not None and is_dataset(args.run)
    if has_tables and args.engine == "numpy":
        raise RunError(f"{args.run} holds tables, which --engine numpy cannot read; leave the option out")
    if args.engine == "ray":
        require_ray("--engine ray")  # before the work
    if has_tables:
        return ranks_in_tables(args.run, only, engine=args.engine or "duckdb")
    run = folder.resolve(args.run)
    if args.engine in (None, "numpy"):
        return ranks(run, only)
    load_duckdb()
    from kernelscope.export.rank_dataset import export_ranks

    with tempfile.TemporaryDirectory(prefix="kernelscope-tables-") as made:
        tables = Path(made) / "tables"
        export_ranks(run, tables, only, tell=lambda line: print(f"tables: {line}", file=sys.stderr))
        return ranks_in_tables(tables, only, engine=args.engine)
