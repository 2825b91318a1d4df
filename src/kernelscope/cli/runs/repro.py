"""`kernelscope repro`: a standalone script of one recorded call, or of one graph."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path

from kernelscope.cli.arguments import add_run, count, part_of
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.stored_run import load

EPILOG = """\
examples:
  kernelscope run --values save --stages train.py    record the inputs of each kernel, and its FX nodes
  kernelscope repro --call 17                        ./repro_call_17.py, with its tensors beside it
  kernelscope repro --call 17 --run                  … and run it: does that kernel alone go wrong?
  kernelscope repro --graph 0_forward -o bug         a whole graph, into ./bug
  kernelscope repro --call 17 --benchmark            time the kernel beside eager and Inductor

The script needs torch (and triton for Triton kernels) and nothing else. Its exit status: 0 the kernel
computes what was recorded and what eager computes, 1 it does not, 2 that cannot be said.
RUN left out is the newest run.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "repro",
        help="write a script that launches one recorded call, or graph, alone and checks it",
        description="Write a standalone script with the real inputs of one call or one graph.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--call", type=count, metavar="N", help="the call, as `kernelscope show` numbers it")
    parser.add_argument("--graph", metavar="GRAPH", help="or a graph: its number, name or compile id")
    parser.add_argument(
        "--stage", default="", metavar="NAME", help="with --graph: which form of it (dynamo, aot, post_grad)"
    )
    parser.add_argument("-o", dest="output", default=".", metavar="DIR", help="where to; default: here")
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="a module that registers operators which the script needs; repeatable",
    )  # fmt: skip
    parser.add_argument("--run", dest="runs", action="store_true", help="run the script, too")
    parser.add_argument(
        "--benchmark", action="store_true", help="run it, and time it beside eager and Inductor"
    )
    parser.set_defaults(main=main)


def check_imports(names: list[str]) -> None:
    for name in names:
        if not all(word.isidentifier() and not iskeyword(word) for word in name.split(".")):
            raise RunError(f"--import {name}: give the name of a module")


def main(args: argparse.Namespace) -> int:
    from kernelscope.repro import files
    from kernelscope.repro.call_script import call_script
    from kernelscope.repro.graph_script import graph_script

    if (args.call is None) == (args.graph is None):
        raise RunError("which one? Give --call N, as `kernelscope show` numbers it, or --graph GRAPH")
    if args.stage and args.graph is None:
        raise RunError("--stage is for a graph: give --graph GRAPH, too")
    check_imports(args.imports)
    run = load(folder.resolve(args.run), part=part_of(args))
    if args.call is not None:
        script = call_script(run, args.call, args.imports)
    else:
        script = graph_script(run, args.graph, args.imports, args.stage)
    path = files.write(script, Path(args.output))
    beside = path.with_suffix(".safetensors") if script.tensors else None
    if args.json:
        tensors = None if beside is None else str(beside)
        print(json.dumps({"script": str(path), "tensors": tensors, "notes": script.notes}))
    else:
        print(f"{path}  ({len(script.tensors)} tensors in {beside.name})" if beside else str(path))
        for note in script.notes:
            print(f"  note: {note}")
    if not (args.runs or args.benchmark):
        return 0
    words = ["--benchmark"] if args.benchmark else []
    output = sys.stderr if args.json else None
    return subprocess.run([sys.executable, str(path), *words], stdout=output, check=False).returncode
