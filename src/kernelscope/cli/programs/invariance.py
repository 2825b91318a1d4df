"""`kernelscope invariance`: the compiled functions of a script, on the same rows alone and among others."""

from __future__ import annotations

import argparse
import re
import sys

from kernelscope.cli.arguments import SCRIPT_USAGE, add_json, add_script
from kernelscope.processes.program_words import script_words

from .script_answer import print_answer

DESCRIPTION = "Run a script, then its compiled functions on the same rows alone and among others."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope invariance serve.py              find the kernel that makes a row depend on the others
  kernelscope invariance --dim 1 serve.py      rows are along dimension 1 of the arguments
  kernelscope invariance --dim 0,none a.py     of the first argument along dimension 0; the second has none
  kernelscope invariance --dim x=1,mask=0 a.py by the names of the arguments
  kernelscope invariance --ops all eager.py    follow the eager operators of modules that are not compiled

The first call of each compiled function is repeated with 1, 2, 3, 7, 8 and all rows, in a different order and
with padding, forward and backward. Exit status: 0 no row depends on the others, 1 one does, 2 inconclusive.
"""

_ENTRY = r"\s*(-?\d+|none|None)\s*"
_DIMS = re.compile(rf"{_ENTRY}(,{_ENTRY})*|\s*\w+\s*={_ENTRY}(,\s*\w+\s*={_ENTRY})*")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "invariance")
    parser.add_argument(
        "--dim",
        type=_dims,
        default="0",
        metavar="DIMS",
        help="dimension of the arguments that holds the rows (default 0); for each argument: 0,1,none; "
        "by name: x=0,mask=none",
    )
    parser.add_argument(
        "--ops",
        choices=["graph", "all"],
        default="graph",
        help="graph: kernels of compiled functions (default); all: also modules that run eagerly",
    )
    parser.add_argument("--verbose", action="store_true", help="print the verdict on every kernel")
    add_script(parser)


def _dims(text: str) -> str:
    """Checked here, and read in the child: this process does not load torch."""
    if not _DIMS.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a dimension (0), one for each argument (0,1,none), or by name (x=0,mask=none)"
        )
    return text


def main(args: argparse.Namespace) -> int:
    from kernelscope.invariance.script_parent import check_script

    words = script_words(
        args.module, args.command, "invariance runs a Python script or -m module, not a command"
    )
    # With --json, stdout is for the result alone.
    output = sys.stderr if args.json else None
    form, text = check_script(words, dim=args.dim, ops=args.ops, verbose=args.verbose, stdout=output)
    return print_answer(form, text, args.json)
