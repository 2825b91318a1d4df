"""`kernelscope stages`: its options. What it does is in `staging`, so that --help need not load it."""

from __future__ import annotations

import argparse

from kernelscope.cli.arguments import add_run

EPILOG = """\
examples:
  kernelscope run --stages train.py            record what the compiler does, too
  kernelscope stages                           the graphs of the newest run, stage by stage
  kernelscope stages --graph 0/0 --stage post_grad
  kernelscope stages --graph "0/0 backward" --diff post_grad_input post_grad
  kernelscope stages --kernel cpp_fused_relu_0 its source, its FX nodes, your lines
  kernelscope stages --fusion                  what was fused, and why other pairs were not
  kernelscope stages --graph 0/0 --sections    FX graph, DAG, code and wrapper
  kernelscope stages --export out              every stage as a file; out/*/output_code.py runs

RUN is a folder or a name in ./kscope-runs; left out, it is the newest run.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "stages",
        help="what the compiler did: graphs, passes, fusion, code, and where each kernel comes from",
        description="Show what the compiler did in a run that was recorded with --stages.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    add = parser.add_argument
    add("--graph", metavar="GRAPH", help='one graph: "0/0", "0/0 backward", 0_backward')
    add("--stage", metavar="NAME", help="print one stage of it")
    add("--diff", nargs=2, metavar=("A", "B"), help="what differs between two stages")
    add("--kernel", metavar="NAME", help="a kernel: source, nodes, your lines; a glob")
    add("--fusion", action="store_true", help="groups that were fused, and refused pairs with the reason")
    add("--settings", action="store_true", help="settings of torch that are not the default, and variables")
    add("--sections", action="store_true", help="print FX graph, DAG, code and wrapper, each in its section")
    add("--only", default="fx,dag,code,wrapper", metavar="WHICH", help="of the sections: fx,dag,code,wrapper")
    add("--no-meta", action="store_true", help="sections without metadata of nodes and inputs")
    add("--no-flow", action="store_true", help="sections without connections between nodes")
    add("--lines", type=int, default=0, metavar="N", help="at most N lines of each part of a section")
    add("--indent", type=int, default=2, metavar="N", help="of the JSON that --export writes")
    add("--export", metavar="DIR", help="write every stage into files below a new folder")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.views.show_stages import show

    return show(args)
