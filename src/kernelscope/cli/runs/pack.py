"""`kernelscope pack`: one file of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_run
from kernelscope.store import folder
from kernelscope.store.packing import SUFFIX, pack
from kernelscope.views import plain
from kernelscope.views.terminal import byte_size

EPILOG = """\
examples:
  kernelscope pack                       NAME.kscope.zip of the newest run
  kernelscope pack train-3 -o bug.zip
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "pack",
        help="make one file of a run",
        description="Make one file of a run, to attach to an issue. It holds kernel sources, paths and, if "
        "they were saved, tensors.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser, parts=False)
    parser.add_argument("-o", dest="output", metavar="FILE", help="default: the run's name with .zip, here")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    run = folder.resolve(args.run)
    target = pack(run, Path(args.output) if args.output else Path(run.absolute().name + SUFFIX))
    size = target.stat().st_size
    if args.json:
        plain.dump({"run": str(run), "file": str(target), "bytes": size})
    else:
        print(f"{target} ({byte_size(size)})")
    return 0
