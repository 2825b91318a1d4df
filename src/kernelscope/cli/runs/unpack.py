"""`kernelscope unpack`: a run of a packed file."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.store import folder
from kernelscope.store.packing import SUFFIX, unpack
from kernelscope.views import plain

EPILOG = """\
examples:
  kernelscope unpack train-3.kscope.zip          to ./kscope-runs/train-3.kscope
  kernelscope unpack bug.zip -o /tmp/bug
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "unpack",
        help="make a run of a packed file",
        description="Make a run of a packed file. Takes only files that a run consists of.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="what `kernelscope pack` made")
    parser.add_argument(
        "-o", dest="output", metavar="NAME", help="folder to make; default: below kscope-runs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/cli.md has the keys)")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    file = Path(args.file)
    name = file.name.removesuffix(SUFFIX)
    target = unpack(file, folder.named(args.output or Path(folder.HOME) / name))
    if args.json:
        plain.dump({"run": str(target)})
    else:
        print(target)
    return 0
