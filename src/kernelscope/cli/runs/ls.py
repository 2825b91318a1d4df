"""`kernelscope ls`: the runs in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_json, add_wide
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.views import plain
from kernelscope.views.run_list import run_lines, summary

DESCRIPTION = "List the runs in a folder and its kscope-runs, newest first."
PAGES = True
EPILOG = """\
examples:
  kernelscope ls                 list the runs here
  kernelscope ls ../other        list the runs in another folder
  kernelscope ls --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", help="where to look; default: here")
    add_json(parser)
    add_wide(parser)


def main(args: argparse.Namespace) -> int:
    where = Path(args.folder)
    if not where.is_dir():
        raise RunError(f"{where} is not a folder")
    runs = [summary(path) for path in folder.runs_in(where)]
    if args.json:
        plain.dump({"runs": runs})
    elif not runs:
        print(f"no runs in {where}; record one: kernelscope run script.py")
    else:
        for line in run_lines(runs):
            print(line)
    return 0
