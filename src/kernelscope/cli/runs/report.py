"""`kernelscope report`: one web page of a run, to open from disk or to attach to an issue."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_run, count

EPILOG = """\
examples:
  kernelscope report                       the newest run, to NAME.html
  kernelscope report train-3 -o page.html  another one, to a file of your choice
  kernelscope report a --diff b            two runs: where they first differ, and all of both
  kernelscope report --first 5000          from call 5000 on, when there are too many for one file

The file needs nothing else: no network, no server. It holds what the run holds, source code too.
kernelscope view shows runs of any length.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="one web page of a run, or of two and their diff",
        description="Write a run as one web page.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("-o", dest="output", metavar="FILE.html", help="where to; default NAME.html")
    parser.add_argument("--diff", metavar="RUN", help="a second run to compare it with")
    parser.add_argument(
        "--first",
        type=count,
        metavar="N",
        help="begin at call N; default: 0, or so that the divergence is in it",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="at most N calls (20000); 0: all")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.cli.arguments import part_of
    from kernelscope.report.file import MOST_CALLS, data, page_of, write
    from kernelscope.store import folder
    from kernelscope.store.stored_run import load
    from kernelscope.views import plain

    run = load(folder.resolve(args.run), part=part_of(args))
    other = None if args.diff is None else load(folder.resolve(args.diff), part=part_of(args))
    limit = MOST_CALLS if args.limit is None else args.limit
    name = run.path.name.removesuffix(folder.SUFFIX)
    path = Path(args.output or f"{name}.html")
    held = data(run, other, first=args.first, limit=limit)
    size = write(page_of(held), path)
    shown = len(held["runs"]["a"]["rows"]["index"])
    if args.json:
        plain.dump({"path": str(path), "bytes": size, "calls": shown, "of": len(run)})
        return 0
    print(f"{path}: {shown:,} calls of {name}, {size / 1e6:.1f} MB")
    if shown < len(run):
        print(f"of {len(run):,} calls; --first and --limit choose, kernelscope view shows all of them")
    return 0
