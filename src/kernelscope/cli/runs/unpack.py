"""`kernelscope unpack`: a run from a packed file."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_json
from kernelscope.store import folder
from kernelscope.store.packing import SUFFIX, unpack
from kernelscope.views import plain

DESCRIPTION = (
    "Unpack a packed run. Only files that belong to a run are written, and nothing in it is executed."
)
EPILOG = """\
examples:
  kernelscope unpack train-3.kscope.zip          writes ./kscope-runs/train-3.kscope
  kernelscope unpack bug.zip -o /tmp/bug
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a file written by `kernelscope pack`")
    parser.add_argument("-o", dest="output", metavar="NAME", help="folder to create; default: in kscope-runs")
    parser.add_argument("--any-size", action="store_true",
                        help="unpack it even if it is 100 times as large as the file")  # fmt: skip
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    file = Path(args.file)
    name = file.name.removesuffix(SUFFIX).strip(".") or "run"  # "." and ".." are folders, not names
    where = folder.named(args.output or Path(folder.HOME) / name)
    target = unpack(file, where, any_size=args.any_size)
    if args.json:
        plain.dump({"run": str(target)})
    else:
        print(target)
    return 0
