"""`kernelscope query`: SQL over a run, read-only."""

from __future__ import annotations

import argparse
from itertools import islice

from kernelscope.cli.arguments import add_part, add_wide, count
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.unwritten import open_run
from kernelscope.store.ranks.rank_parts import load_rank
from kernelscope.views import plain
from kernelscope.views.terminal import table

DESCRIPTION = "Run a SELECT over the tables of a run. Nothing is ever written."
PAGES = True
USAGE = "[RUN] [--json] [--wide] [--limit N] [--rank N | --part NAME] 'SELECT …'"
EPILOG = """\
examples:
  kernelscope query "SELECT kernel, count(*) FROM call GROUP BY 1 ORDER BY 2 DESC"
  kernelscope query train-3 "SELECT id, kernel, step FROM call WHERE phase = 'backward' LIMIT 10"
  kernelscope query "SELECT name, before, after FROM hash WHERE call = 17"
  kernelscope query --json "SELECT * FROM findings"

`call` has a row for each call and `hash` one for each hashed argument; docs/runs.md describes all tables.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="+", metavar="[RUN] SQL", help="a run (default: the newest) and the query")
    add("--json", action="store_true", help='print {"columns": […], "rows": [[…], …]}')
    add_wide(parser)
    add("--limit", type=count, default=1000, metavar="N", help="at most N rows (default 1000); 0: all")
    add_part(parser)


def main(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise RunError("put the query in quotes: kernelscope query [RUN] 'SELECT …'")
    *run, sql = args.words
    root = folder.resolve(run[0] if run else None)
    if args.rank is not None:
        found = [load_rank(root, args.rank).path]
    else:
        found = [root / args.part] if args.part else folder.parts(root)
    if not found:
        raise RunError(f"{root} is empty: no process recorded anything")
    names, rows = open_run(found[0]).query(sql)
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
