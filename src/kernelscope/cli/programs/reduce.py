"""`kernelscope reduce`: its options. What it does is in `reducing`, so that --help need not load it."""

from __future__ import annotations

import argparse

from kernelscope.cli.arguments import count

REPEATS, TIMEOUT = 1, 300
EPILOG = """\
examples:
  kernelscope reduce train.py --epochs 1     ./train-reduced/reduced.py: the smallest graph that fails
  kernelscope reduce repro_graph_0.py        of a recorded graph; kernelscope repro --graph writes that
  kernelscope reduce --resume train.py       go on after Ctrl-C or a crash

The script runs up to the first kernel that computes something else than eager (as `kernelscope shadow`
finds it), or to the first exception of the compiler. Then parts of its graph are compiled and run, until
none smaller fails in the same way: same verdict on the same kernel, or same exception.
Exit status: 0 there is a reduced script, 2 there is not.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "reduce",
        help="the smallest graph that still fails in the same way, as a script",
        description="Reduce what a script compiles to the smallest graph that fails in the same way.",
        usage="kernelscope reduce [options] (script.py | -m module) [arguments …]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", dest="output", default="", metavar="DIR", help="where to; default NAME-reduced")
    parser.add_argument("--resume", action="store_true", help="go on with the journal in that folder")
    parser.add_argument(
        "--repeats",
        type=count,
        default=REPEATS,
        metavar="N",
        help="try each graph up to N times: for flaky failures",
    )
    parser.add_argument(
        "--timeout", type=count, default=TIMEOUT, metavar="S", help=f"seconds for one trial ({TIMEOUT})"
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON (docs/repro.md has the keys)")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.reduction.script_parent import reduce

    return reduce(args)
