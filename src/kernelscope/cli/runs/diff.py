"""`kernelscope diff`: where two runs first differ, and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.store import folder

EPILOG = """\
examples:
  kernelscope diff train-1 train-2          the first divergence of two runs
  kernelscope diff                          of the two newest runs here
  kernelscope diff train-1 train-2 --save   run both again, keep that call's tensors, and compare the numbers
  kernelscope diff --json a b | jq .divergence.kernel_name

The runs need hashes: kernelscope run --values hash script.py. Exit status 0: they agree; 1: they differ;
2: they could not be compared.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "diff",
        help="where two runs first differ, and why",
        description="Compare two runs of a program, and name the first call at which they differ.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", nargs="?", metavar="A", help="a run; default: the one before the newest")
    parser.add_argument("b", nargs="?", metavar="B", help="another; default: the newest")
    parser.add_argument(
        "--part", default="", metavar="NAME", help="compare another process: rank-1, child-42"
    )
    parser.add_argument("--rank", type=int, metavar="N", help="short for --part rank-N")
    parser.add_argument(
        "--save",
        action="store_true",
        help="run both commands again with the tensors of that call saved, for the numbers",
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/diff.md has the keys)")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.analysis.diff.search import diff
    from kernelscope.cli.arguments import part_of
    from kernelscope.startup.rerun_saving import with_numbers
    from kernelscope.store.stored_run import load
    from kernelscope.views import plain

    a, b = _runs(args.a, args.b)
    first, second = (load(path, part=part_of(args)) for path in (a, b))
    found = diff(first, second)
    if args.save and found:
        found = with_numbers(found, (a, first), (b, second))
    if args.json:
        plain.dump(found.to_json())
    else:
        print(found)
    return int(bool(found))


def _runs(a: str | None, b: str | None) -> tuple[Path, Path]:
    """Two runs as given, or the newest ones."""
    if a is not None and b is not None:
        return folder.resolve(a), folder.resolve(b)
    newest = folder.runs_in(Path.cwd())
    if a is not None:
        return folder.resolve(a), folder.newest()
    if len(newest) < 2:
        raise RunError(
            f"there are {len(newest)} runs here, and it takes two; "
            "make them: kernelscope run --values hash script.py"
        )
    return newest[1], newest[0]
