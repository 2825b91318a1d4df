"""`kernelscope query`: SQL over a run, reading only."""

from __future__ import annotations

import argparse
from itertools import islice

from kernelscope.cli.arguments import count
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.reader import Database
from kernelscope.views import plain
from kernelscope.views.terminal import table

EPILOG = """\
examples:
  kernelscope query "SELECT kernel, count(*) FROM call GROUP BY 1 ORDER BY 2 DESC"
  kernelscope query train-3 "SELECT id, kernel, step FROM call WHERE phase = 'backward' LIMIT 10"
  kernelscope query "SELECT name, before, after FROM hash WHERE call = 17"
  kernelscope query --json "SELECT * FROM findings"

`call` has a row for each call and `hash` one for each hashed argument; docs/runs.md has all tables.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "query",
        help="ask a run in SQL",
        description="Run a SELECT over the tables of a run. Nothing is ever written.",
        usage="kernelscope query [--json] [--limit N] [--part NAME] [RUN] 'SELECT …'",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="+", metavar="[RUN] SQL", help="a run (default: the newest) and the query"
    )
    parser.add_argument("--json", action="store_true", help='print {"columns": […], "rows": [[…], …]}')
    parser.add_argument(
        "--limit", type=count, default=1000, metavar="N", help="at most N rows (1000); 0: all"
    )
    parser.add_argument(
        "--part", default="", metavar="NAME", help="another process of the run: rank-1, child-42"
    )
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise RunError("put the query in quotes: kernelscope query [RUN] 'SELECT …'")
    *run, sql = args.words
    root = folder.resolve(run[0] if run else None)
    found = [root / args.part] if args.part else folder.parts(root)
    if not found:
        raise RunError(f"there is no run in {root}: no process in it recorded anything")
    names, rows = Database(found[0] / folder.DATABASE).query(sql)
    taken = list(islice(rows, args.limit + 1) if args.limit else rows)
    more = bool(args.limit) and len(taken) > args.limit
    taken = taken[: args.limit] if more else taken
    shown = [tuple(cell.hex() if isinstance(cell, bytes) else cell for cell in row) for row in taken]
    if args.json:
        plain.dump({"columns": names, "rows": shown, "more": more})
    else:
        numeric = [
            i for i in range(len(names)) if all(isinstance(row[i], int | float | None) for row in shown)
        ]
        for line in table(names, shown, right=numeric):
            print(line)
        if more:
            print("… more: --limit 0 for all")
    return 0
