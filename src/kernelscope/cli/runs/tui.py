"""`kernelscope tui`: a run in the terminal."""

from __future__ import annotations

import argparse
import json
import sys

from kernelscope.cli.arguments import add_run, load_other, load_run
from kernelscope.errors import RunError

DESCRIPTION = "Browse a run in a full-screen terminal, for example over ssh."
EPILOG = """\
examples:
  kernelscope tui                          browse the newest run
  kernelscope tui train-1 --diff train-2   compare two runs: d shows where they first differ

keys: / filter calls (*mm* phase=backward, or a number), enter open a call, s source, n next call,
p previous call, f findings, d diff, escape back, q quit. Needs Textual: pip install 'kernelscope[tui]'
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--diff", metavar="OTHER", help="a second run to compare with")


def main(args: argparse.Namespace) -> int:
    run, other = load_run(args), load_other(args)
    if args.json:
        print(json.dumps({"run": str(run.path), "other": None if other is None else str(other.path)}))
        return 0
    try:
        from kernelscope.tui.app import RunApp
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise RunError("tui needs Textual, which is not installed: pip install 'kernelscope[tui]'") from None
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise RunError("tui needs a terminal; without one, use kernelscope show")
    RunApp(run, other).run()
    return 0
