"""`kernelscope report`: one web page of a run, to open from disk or to attach to an issue."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_precision, add_ranks, add_run, load_other, load_run
from kernelscope.options import count
from kernelscope.text.amounts import counted

DESCRIPTION = "Write a run as one web page."
EPILOG = """\
examples:
  kernelscope report                       write the newest run to NAME.html
  kernelscope report train-3 -o page.html  write another run to a file of your choice
  kernelscope report a --diff b            compare two runs: their first divergence, and all of both
  kernelscope report --precision map.json  with the precision of each kernel (kernelscope precision --json)
  kernelscope report --first 5000          start at call 5000, if one file cannot hold all calls
  kernelscope report --rank 1 --ranks 0-3  the calls of rank 1; which of ranks 0 to 3 differs first, and where

The page needs no network and no server. It contains everything that the run contains, including source code.
kernelscope view shows runs of any length.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_ranks(parser, "ranks to compare on the page (default: all)")
    add = parser.add_argument
    add("-o", dest="output", metavar="FILE.html", help="output file; default NAME.html")
    add("--diff", metavar="RUN", help="a second run to compare with")
    add_precision(parser)
    add("--first", type=count, metavar="N",
        help="start at call N; default: 0, or such that the divergence is included")  # fmt: skip
    add("--limit", type=count, metavar="N", help="at most N calls (default 20000); 0: all")


def main(args: argparse.Namespace) -> int:
    from kernelscope.report.content.precision import precision_of
    from kernelscope.report.content.ranks import ranks_of
    from kernelscope.report.file import MOST_CALLS, data, page_of, write
    from kernelscope.store import folder
    from kernelscope.views import plain

    run, other = load_run(args), load_other(args)
    limit = MOST_CALLS if args.limit is None else args.limit
    name = run.path.name.removesuffix(folder.SUFFIX)
    path = Path(args.output or f"{name}.html")
    precision = precision_of(args.precision)
    ranks = ranks_of(folder.resolve(args.run), args.ranks or None)
    held = data(run, other, first=args.first, limit=limit, ranks=ranks, precision=precision)
    size = write(page_of(held), path)
    shown = len(held["runs"]["a"]["rows"]["index"])
    if args.json:
        plain.dump({"path": str(path), "bytes": size, "calls": shown, "of": len(run)})
        return 0
    print(f"{path}: {counted(shown, 'call')} of {name}, {size / 1e6:.1f} MB")
    if shown < len(run):
        print(f"of {len(run):,} calls; choose with --first and --limit, or use kernelscope view for all")
    return 0
