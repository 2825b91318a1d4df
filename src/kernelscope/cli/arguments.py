"""Arguments that several commands share."""

from __future__ import annotations

import argparse


def add_run(parser: argparse.ArgumentParser, *, parts: bool = True) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's folder or name; default: the newest")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/cli.md has the keys)")
    if parts:
        parser.add_argument(
            "--part", default="", metavar="NAME", help="another process of the run: rank-1, child-42"
        )
        parser.add_argument("--rank", type=count, metavar="N", help="short for --part rank-N")


def add_choice_of_calls(parser: argparse.ArgumentParser) -> None:
    """Which calls of a run, as `Run.select` takes it."""
    parser.add_argument(
        "--kernel", action="append", default=[], metavar="GLOB", help="kernels with such a name"
    )
    parser.add_argument(
        "--kind", action="append", default=[], metavar="KIND", help="triton, cpp, extern, op, …"
    )
    parser.add_argument("--graph", metavar="GRAPH", help="one graph: its number, name or compile id")
    parser.add_argument("--step", type=count, metavar="N", help="one step")
    parser.add_argument("--phase", metavar="PHASE", help="forward, backward, optimizer or other")


def count(text: str) -> int:
    """A number of calls, rows or steps."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no whole number") from None
    if not 0 <= number < 1 << 62:
        raise argparse.ArgumentTypeError(f"{text:.40} is not a number from 0 on")
    return number


def part_of(args: argparse.Namespace) -> str:
    return f"rank-{args.rank}" if args.rank is not None else str(args.part)
