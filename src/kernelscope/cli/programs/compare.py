"""`kernelscope compare`: two scripts that should compute the same, the reference on the other's values."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernelscope.cli.arguments import add_json
from kernelscope.errors import RunError
from kernelscope.processes.program_words import check_script

from .script_answer import print_answer

DESCRIPTION = "Find the first call whose difference from a reference is more than rounding explains."
USAGE = "[options] reference.py other.py [arguments of both]"
EPILOG = """\
examples:
  kernelscope compare float32.py bfloat16.py      is the difference rounding, or an error, and where?
  kernelscope compare eager.py compiled.py --steps 2

The other script runs first, and every value is kept. Then the reference runs once, eagerly, on those values:
each call is judged by itself, and its tolerance is measured by perturbing its inputs by one rounding.
Exit status: 0 rounding explains all differences, 1 it does not, 2 inconclusive.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "compare")
    parser.add_argument("--verbose", action="store_true", help="print everything that was found")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def main(args: argparse.Namespace) -> int:
    from kernelscope.comparison.scripts.parent import compare_scripts

    if len(args.command) < 2:
        raise RunError("nothing to compare: give the reference and the other script")
    reference, other, *rest = args.command
    for script in (reference, other):
        check_script(Path(script))
    # With --json, stdout is for the result alone.
    output = sys.stderr if args.json else None
    form, text = compare_scripts([reference, *rest], [other, *rest], verbose=args.verbose, stdout=output)
    return print_answer(form, text, args.json)
