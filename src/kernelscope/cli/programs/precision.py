"""`kernelscope precision`: the error and range of each kernel of a script, and which formats would do."""

from __future__ import annotations

import argparse
import math
import sys

from kernelscope.cli.arguments import SCRIPT_USAGE, add_json, add_script
from kernelscope.options import number
from kernelscope.processes.program_words import script_words

from .script_answer import print_answer

DESCRIPTION = "Measure each kernel of a script against float64, and try which could have a narrower format."
USAGE = SCRIPT_USAGE
FORMATS = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "mxfp8", "mxfp4")
EPILOG = """\
examples:
  kernelscope precision train.py                       which kernels can be bfloat16 or fp8?
  kernelscope precision --tolerance 1e-3 --output 'result *' serve.py
  kernelscope precision --format mxfp8 train.py        try another format

Runs the script, then repeats the first call of each of its compiled functions, with the outputs of some
kernels rounded. Exit status: 0 a map; 1 a kernel overflows its dtype, or has more error than rounding
explains; 2 inconclusive.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "precision")
    add = parser.add_argument
    add("--output", action="append", default=[], metavar="GLOB",
        help="outputs that must stay within the tolerance, such as 'result 0' or 'gradient of *'; repeatable "
        "(default: all)")  # fmt: skip
    add("--tolerance", type=_tolerance, default=0.01, metavar="X",
        help="relative error that these outputs may have (default 0.01)")  # fmt: skip
    add("--format", action="append", default=[], choices=FORMATS, dest="formats",
        help="format to try; repeatable (default: bfloat16 and float8_e4m3fn)")  # fmt: skip
    add("--ops", choices=["graph", "all"], default="graph",
        help="graph: kernels of compiled functions (default); all: also eager modules")  # fmt: skip
    add(
        "--verbose",
        action="store_true",
        help="print all shares, and the effect of each kernel",
    )
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.precision.scripts.parent import map_script

    words = script_words(
        args.module, args.command, "precision runs a Python script or -m module, not a command"
    )
    options = {
        "output": args.output,
        "tolerance": args.tolerance,
        "formats": args.formats or ["bfloat16", "float8_e4m3fn"],
        "ops": args.ops,
        "verbose": args.verbose,
    }
    # With --json, stdout is for the result alone.
    form, text = map_script(words, options, stdout=sys.stderr if args.json else None)
    return print_answer(form, text, args.json)


def _tolerance(text: str) -> float:
    relative = number(text)
    if not math.isfinite(relative) or relative < 0:
        raise argparse.ArgumentTypeError(f"{text:.40}: give a relative error of at least 0, such as 0.01")
    return relative
