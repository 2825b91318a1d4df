"""`kernelscope query`: SQL over a run, read-only."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from kernelscope.cli.arguments import add_part, add_ranks, add_wide
from kernelscope.errors import RunError
from kernelscope.options import count
from kernelscope.store import folder
from kernelscope.store.flight.recovered_calls import open_run
from kernelscope.store.ranks.rank_parts import load_rank, rank_parts
from kernelscope.store.stored_run import load
from kernelscope.views import plain
from kernelscope.views.terminal import table

DESCRIPTION = "Run a SELECT over the tables of a run. Nothing is ever written."
PAGES = True
USAGE = "[RUN] [--json] [--wide] [--limit N] [--rank N | --ranks LIST | --part NAME] 'SELECT …'"
EPILOG = """\
examples:
  kernelscope query "SELECT kernel, count(*) FROM call GROUP BY 1 ORDER BY 2 DESC"
  kernelscope query train-3 "SELECT id, kernel, step FROM call WHERE phase = 'backward' LIMIT 10"
  kernelscope query "SELECT name, before, after FROM hash WHERE call = 17"
  kernelscope query --json "SELECT * FROM findings"
  kernelscope query --ranks all "SELECT count(*) FROM call"    one row for each rank

`call` has a row for each call and `hash` one for each hashed argument; docs/runs.md describes all tables.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="+", metavar="[RUN] SQL", help="a run (default: the newest) and the query")
    add("--json", action="store_true", help='print {"columns": […], "rows": [[…], …]}')
    add_wide(parser)
    add("--limit", type=count, default=1000, metavar="N", help="at most N rows (default 1000); 0: all")
    add_part(parser)
    add_ranks(parser, "query each of these ranks; the first column is the rank")


def main(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise RunError("put the query in quotes: kernelscope query [RUN] 'SELECT …'")
    *run, sql = args.words
    root = folder.resolve(run[0] if run else None)
    names, rows = (
        _each_rank(args, root, sql) if args.ranks is not None else open_run(_part(args, root)).query(sql)
    )
    taken = list(islice(rows, args.limit + 1) if args.limit else rows)
    more = bool(args.limit) and len(taken) > args.limit
    taken = taken[: args.limit] if more else taken
    shown = [tuple(cell.hex() if isinstance(cell, bytes) else cell for cell in row) for row in taken]
    if args.json:
        plain.dump({"columns": names, "rows": shown, "more": more})
        return 0
    numeric = [i for i in range(len(names)) if all(isinstance(row[i], int | float | None) for row in shown)]
    for line in table(names, shown, right=numeric):
        print(line)
    if more:
        print("… more: --limit 0 for all")
    return 0


def _part(args: argparse.Namespace, root: Path) -> Path:
    if args.rank is not None:
        return load_rank(root, args.rank).path
    return load(root, part=args.part or "").path


def _each_rank(args: argparse.Namespace, root: Path, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """The rows of every chosen rank, one after the other, with its number before them."""
    if args.rank is not None or args.part:
        raise RunError("--ranks, --rank and --part exclude each other; give one of them")
    runs = rank_parts(root).runs
    chosen = args.ranks or list(runs)
    if unknown := [rank for rank in chosen if rank not in runs]:
        raise RunError(f"{root} has no rank {unknown[0]}; it has {', '.join(map(str, runs))}")
    names, first = open_run(runs[chosen[0]].path).query(sql)
    others = ((rank, open_run(runs[rank].path).query(sql)[1]) for rank in chosen[1:])  # one open at a time
    rows = ((rank, *row) for rank, found in chain([(chosen[0], first)], others) for row in found)
    return ["rank", *names], rows
