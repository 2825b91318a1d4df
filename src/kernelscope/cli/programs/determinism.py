"""`kernelscope determinism`: its options. What it does is in `repeating`, so that --help need not load it."""

from __future__ import annotations

import argparse

EPILOG = """\
examples:
  kernelscope determinism train.py --epochs 1            three times in one process
  kernelscope determinism --fresh --runs 5 train.py      five processes
  kernelscope determinism --fresh --recompile train.py   each compiles and autotunes anew
  kernelscope determinism --json train.py | jq '.kernels[].kernel_name'

A kernel that left other values for the same inputs is launched alone, many times, before it is accused.
Exit status 0: every call did the same; 1: something differed; 2: the script could not be run.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "determinism",
        help="run a script several times: which kernels are not deterministic",
        description="Run a script several times, and name each kernel that does not do the same each time.",
        usage="kernelscope determinism [options] (script.py | -m module) [arguments …]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how many times (3)")
    parser.add_argument("--fresh", action="store_true", help="each in a process of its own")
    parser.add_argument("--recompile", action="store_true", help="with an empty compile cache for each")
    parser.add_argument(
        "--ops",
        default="all",
        metavar="WHICH",
        help="all: eager operators too (default), or graph",
    )
    parser.add_argument("-o", dest="output", metavar="NAME", help="folder for the runs")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/diff.md has the keys)")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.determinism.script_check import repeat

    return repeat(args)
