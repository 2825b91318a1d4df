"""`kernelscope pack`: one file of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_json, add_run_name
from kernelscope.store import folder
from kernelscope.store.packing import SUFFIX, pack
from kernelscope.text.amounts import byte_size
from kernelscope.views import plain

DESCRIPTION = "Pack a run into one file to attach to an issue: kernel sources, paths and saved tensors."
EPILOG = """\
examples:
  kernelscope pack                       pack the newest run into NAME.kscope.zip
  kernelscope pack train-3 -o bug.zip
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_name(parser)
    add_json(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help="default: the run's name with .zip, here")


def main(args: argparse.Namespace) -> int:
    run = folder.resolve(args.run)
    target = pack(run, Path(args.output) if args.output else Path(run.absolute().name + SUFFIX))
    size = target.stat().st_size
    if args.json:
        plain.dump({"run": str(run), "file": str(target), "bytes": size})
    else:
        print(f"{target} ({byte_size(size)})")
    return 0
