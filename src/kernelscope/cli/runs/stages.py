"""`kernelscope stages`: what the compiler did."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_ranks, add_run, load_run
from kernelscope.cli.each_rank import each_rank
from kernelscope.errors import RunError
from kernelscope.options import count

DESCRIPTION = "Show what the compiler did, in a run with stages; kernelscope run records them."
PAGES = True
EPILOG = """\
examples:
  kernelscope run train.py                     record a script, and what the compiler does
  kernelscope stages                           list the graphs of the newest run, stage by stage
  kernelscope stages --graph 0/0 --stage post_grad
  kernelscope stages --graph "0/0 backward" --diff post_grad_input post_grad
  kernelscope stages --kernel cpp_fused_relu_0 show its source, FX nodes and your lines
  kernelscope stages --fusion                  show what was fused, and why other pairs were not
  kernelscope stages --graph 0/0 --sections    show FX graph, DAG, code and wrapper
  kernelscope stages --export out              write every stage to a file; out/*/output_code.py runs

RUN is a folder, or the name of a run in ./kscope-runs. The default is the newest run.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_ranks(parser, "what the compiler did on these ranks, one after the other")
    add = parser.add_argument
    add("--graph", metavar="GRAPH", help='one graph: "0/0", "0/0 backward", 0_backward')
    add("--stage", metavar="NAME", help="print one stage of the graph")
    add("--diff", nargs=2, metavar=("A", "B"), help="print the difference between two stages")
    add(
        "--kernel",
        metavar="GLOB",
        help="source, FX nodes and program lines of kernels whose name matches GLOB",
    )
    add("--fusion", action="store_true", help="fused groups, and refused pairs with the reason")
    add("--settings", action="store_true", help="torch settings that are not the default, and variables")
    add("--sections", action="store_true", help="print FX graph, DAG, code and wrapper as sections")
    add("--only", metavar="LIST", help="with --sections: only these, of fx,dag,code,wrapper")
    add("--no-meta", action="store_true", help="with --sections: no metadata of nodes and inputs")
    add("--no-flow", action="store_true", help="with --sections: no connections between nodes")
    add("--lines", type=count, default=0, metavar="N", help="with --sections: at most N lines of each part")
    add("--indent", type=count, metavar="N", help="with --export: indentation of the JSON (default 2)")
    add("--export", metavar="DIR", help="write every stage to files in a new folder")


def main(args: argparse.Namespace) -> int:
    if args.ranks is not None and args.export:
        raise RunError("--ranks cannot be combined with --export, which writes one new folder; give --rank N")
    for name in ("only", "no_meta", "no_flow", "lines"):
        if getattr(args, name) and not args.sections:
            raise RunError(f"--{name.replace('_', '-')} needs --sections")
    if args.indent is not None and not args.export:
        raise RunError("--indent needs --export DIR")
    return each_rank(args, _main)


def _main(args: argparse.Namespace) -> int:
    from kernelscope.views import show_stages as views

    run = load_run(args)
    with views.clear_errors(run):
        if args.settings:
            views.show_settings(run, as_json=args.json)
            return 0
        graphs = views.graphs_of(run, args.graph)
        if args.export:
            views.export_stages(
                run, graphs, Path(args.export), 2 if args.indent is None else args.indent, as_json=args.json
            )
        elif args.kernel:
            views.show_kernels(graphs, args.kernel, as_json=args.json)
        elif args.stage:
            print(views.only_graph(graphs, "--stage").stage(args.stage).text)
        elif args.diff:
            print(views.only_graph(graphs, "--diff").diff(*args.diff))
        elif args.fusion:
            views.show_fusion(graphs)
        elif args.sections:
            parts = views.sections(
                args.only or "fx,dag,code,wrapper",
                meta=not args.no_meta,
                flow=not args.no_flow,
                lines=args.lines,
            )
            views.show_sections(run, graphs, parts)
        else:
            views.show_graphs(run, graphs, is_one=bool(args.graph), as_json=args.json)
    return 0
