"""`kernelscope tui`: a run in the terminal, to walk through."""

from __future__ import annotations

import argparse
import json
import sys

from kernelscope.cli.arguments import add_run

EPILOG = """\
examples:
  kernelscope tui                          the newest run
  kernelscope tui train-1 --diff train-2   … and d shows where the two first differ

keys: / choose calls (*mm* phase=backward, or a number), enter a call, s its source, n and p its neighbours,
f findings, d diff, escape back, q quit. Needs Textual: pip install 'kernelscope[tui]'
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "tui",
        help="walk through a run in the terminal: calls, a call, source, diff",
        description="Show a run on the whole screen of a terminal: for people on ssh.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--diff", metavar="OTHER", help="another run, to compare with")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.cli.arguments import part_of
    from kernelscope.errors import RunError
    from kernelscope.store import folder
    from kernelscope.store.stored_run import load

    run = load(folder.resolve(args.run), part=part_of(args))
    other = None if args.diff is None else load(folder.resolve(args.diff), part=part_of(args))
    if args.json:
        print(json.dumps({"run": str(run.path), "other": None if other is None else str(other.path)}))
        return 0
    try:
        from kernelscope.tui.app import RunApp
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise RunError(
            "it needs Textual, which is not installed here: pip install 'kernelscope[tui]'"
        ) from None
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise RunError("tui needs a terminal; without one: kernelscope show")
    RunApp(run, other).run()
    return 0
