"""`kernelscope shadow`: the script runs in a child, which checks every kernel of its compiled code."""

from __future__ import annotations

import argparse
import json
import sys

from kernelscope.cli.arguments import SCRIPT_USAGE, add_json, add_script
from kernelscope.processes.program_words import script_words
from kernelscope.text.terminal_size import fitted

DESCRIPTION = "Run a script and compare each compiled kernel with eager and with float64, on its own inputs."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope shadow train.py --epochs 1     find the kernel whose result differs from eager
  kernelscope shadow --verbose train.py      print all numbers, and everything that was not checked
  kernelscope shadow --json -m my.module     print JSON; the program's own output goes to stderr

Everything is compiled again, without torch's compile caches, because only the compiler knows which buffer
holds which value. Exit status: 0 nothing is wrong, 1 something is wrong, 2 inconclusive.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "shadow")
    parser.add_argument(
        "--offload", action="store_true", help="compute the references on the CPU, to save GPU memory"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print all numbers, everything not checked, and tracebacks"
    )
    parser.add_argument(
        "--every",
        action="store_true",
        help="compare each execution of a compiled function with eager, not only some of them",
    )
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.shadowing.script_parent import shadow_script

    words = script_words(args.module, args.command, "shadow runs a Python script or -m module, not a command")
    # With --json, stdout is for the result alone.
    output = sys.stderr if args.json else None
    found = shadow_script(words, offload=args.offload, every=args.every, verbose=args.verbose, stdout=output)
    if args.json:
        print(json.dumps(found.form, indent=2))
    elif found.text:
        print(found.text)
    if found.problem:
        print(fitted(f"kernelscope: {found.problem}", sys.stderr), file=sys.stderr)
    return found.status
