"""`kernelscope export`: a run in the form of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_choice_of_calls, count

EPILOG = """\
examples:
  kernelscope export --perfetto                 a trace for ui.perfetto.dev or chrome://tracing
  kernelscope export --parquet -o tables        tables for pandas, polars or DuckDB: tables/calls.parquet, …
  kernelscope export --json -o - | jq '.calls[0].kernel_name'
  kernelscope export --dot -o flow.dot          which kernel feeds which: dot -Tsvg flow.dot
  kernelscope export --perfetto --step 3        of one step only

A long run is read and written piece by piece. Without -o the file lies here, named after the run.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "export",
        help="a run as a Perfetto trace, Parquet tables, JSON or a Graphviz graph",
        description="Write a run, or some of its calls, in the form of another tool.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's folder or name; default: the newest")
    forms = parser.add_mutually_exclusive_group(required=True)
    for name, what in (
        ("perfetto", "a trace with streams, threads, graphs, stages, and arrows from writers to readers"),
        ("parquet", "a folder of tables (needs pyarrow)"),
        ("json", "one document with everything (docs/export.md has the keys)"),
        ("dot", "a graph of kernels and what flows between them"),
    ):
        forms.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=what)
    parser.add_argument("-o", dest="output", metavar="FILE", help="where to; - is standard output")
    parser.add_argument("--no-flows", action="store_true", help="with --perfetto: no arrows; smaller by half")
    parser.add_argument(
        "--part", default="", metavar="NAME", help="another process of the run: rank-1, child-42"
    )
    parser.add_argument("--rank", type=count, metavar="N", help="short for --part rank-N")
    add_choice_of_calls(parser)
    parser.add_argument("--first", type=count, default=0, metavar="N", help="begin at call N")
    parser.add_argument("--limit", type=count, default=0, metavar="N", help="at most N calls; 0: all")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.cli.arguments import part_of
    from kernelscope.errors import RunError
    from kernelscope.export import FORMS, export
    from kernelscope.export.call_filter import Wanted
    from kernelscope.store import folder
    from kernelscope.store.stored_run import load

    if args.no_flows and args.form != "perfetto":
        raise RunError("--no-flows is about the arrows of --perfetto")
    run = load(folder.resolve(args.run), part=part_of(args))
    graph = int(args.graph) if args.graph and args.graph.isdecimal() else args.graph
    wanted = Wanted(
        tuple(args.kernel), tuple(args.kind), graph, args.step, args.phase, args.first, args.limit
    )
    path = Path(args.output or run.path.name.removesuffix(folder.SUFFIX) + FORMS[args.form][1])
    calls = export(run, args.form, path, wanted=wanted, flows=not args.no_flows)
    if args.output != "-":
        print(f"{calls:,} calls in {path}")
        if args.form == "perfetto":
            if calls and not run.times():
                print("the run has no times, so each call is a mark at its launch; record with --time")
            print("open it in https://ui.perfetto.dev or chrome://tracing; both read it on your machine only")
    return 0
