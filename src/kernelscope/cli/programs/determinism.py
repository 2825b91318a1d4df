"""`kernelscope determinism`: a script several times, and the kernels that vary."""

from __future__ import annotations

import argparse

from kernelscope.cli.arguments import SCRIPT_USAGE, add_json, add_ops, add_ray, add_script, ray_of
from kernelscope.errors import RunError
from kernelscope.options import count
from kernelscope.processes.program_words import command_words, stem_of

DESCRIPTION = "Run a script several times, and name each kernel that gives varying results."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope determinism train.py --epochs 1            run it three times in one process
  kernelscope determinism --fresh --runs 5 train.py      use five processes
  kernelscope determinism --fresh --recompile train.py   compile and autotune again in each
  kernelscope determinism --ray=10.0.0.7:6379 --runs 20 train.py   let a Ray cluster make the runs
  kernelscope determinism --json train.py | jq '.kernels[].kernel_name'

A kernel whose outputs differ for the same inputs is launched alone, many times, before it is reported.
Exit status: 0 all runs were identical, 1 something differed, 2 the script could not be run.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--runs", type=count, default=3, metavar="N", help="number of runs (default 3)")
    add("--fresh", action="store_true", help="use a new process for each run")
    add("--recompile", action="store_true", help="use an empty compile cache for each run")
    add_ray(parser, "make each run in a process of its own on a Ray cluster, several at once")
    add_ops(parser)
    add("-o", dest="output", metavar="NAME", help="folder for the runs")
    add_json(parser, "diff")
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.determinism.script_check import ScriptRuns
    from kernelscope.views import plain

    if args.runs < 2:
        raise RunError(f"--runs {args.runs}: use at least 2; one run has nothing to be compared with")
    if args.ops not in ("all", "graph"):
        raise RunError(f"--ops {args.ops}: use all or graph")
    command, stem = command_words(args.module, args.command), stem_of(args.module, args.command)
    with ray_of(args) as ray:
        runs = ScriptRuns(command, args.ops, recompile=args.recompile, ray=ray)
        result, path = runs.check(args.runs, args.output or "", stem, fresh=args.fresh)
    if args.json:
        plain.dump(result.to_json() | {"path": str(path)})
    else:
        print(f"{result}\n  the runs are in {path}")
    return int(bool(result))
