"""`kernelscope run`: the script runs in a child, and what it launches is recorded there."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_script
from kernelscope.errors import RunError
from kernelscope.options import add_recording_options, check_options, options_text
from kernelscope.processes.program_words import command_words, stem_of
from kernelscope.startup.exact_rerun import (
    fault_in_graph,
    is_short,
    late_hits,
    rerun_exactly,
    rerun_marked,
)
from kernelscope.startup.recorded_child import watch
from kernelscope.store import folder

DESCRIPTION = "Run a script, module or command, and record every kernel that it launches."
USAGE = "[options] (script.py | -m module | -- command) [arguments …]"
EPILOG = """\
examples:
  kernelscope run train.py --epochs 1          record a script
  kernelscope run --values hash -m my.module   hash every tensor before and after each kernel
  kernelscope run --time --steps 3:5 train.py  time steps 3 and 4
  kernelscope run --print --values-of '*addmm*' train.py     print the arguments of these kernels
  kernelscope run --stop-on nan train.py       stop at the first kernel that makes a NaN and save its inputs
  kernelscope run -o before -- torchrun --nproc-per-node 2 train.py

The exit status is that of the script, or 2 if it could not be started. Processes that the script starts are
recorded too, each in its own folder below the run. Under torchrun or Slurm, set KERNELSCOPE_RUN=NAME in the
environment instead of using this command; KERNELSCOPE_OPTIONS takes the options.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_recording_options(parser.add_argument_group("what to record"))
    parser.set_defaults(stages=True)  # they cost nothing, and later commands need them
    add = parser.add_argument_group("output").add_argument
    add("-o", dest="output", metavar="NAME", help="folder to create; default kscope-runs/SCRIPT-1.kscope")
    add("--json", action="store_true", help="at the end, print where the run is, as JSON on stderr")
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    try:
        check_options(args)
    except (ValueError, TypeError) as error:
        raise RunError(str(error)) from None
    command, stem = command_words(args.module, args.command), stem_of(args.module, args.command)
    output = args.output and folder.named(args.output)
    home = output.parent if output else Path(folder.HOME)
    path = folder.create(output) if output else folder.create_next(home, stem)
    status = watch(command, path, options_text(args), as_json=args.json)
    if args.stop_on and not args.exact and (late := late_hits(path)):
        args.exact = True
        path = folder.create_next(home, f"{stem}-exact")
        return rerun_exactly(command, path, options_text(args), late[0], as_json=args.json)
    if not args.mark_graphs and fault_in_graph(path) is not None and is_short(path):
        args.mark_graphs = True
        path = folder.create_next(home, f"{stem}-marked")
        rerun_marked(command, path, options_text(args), as_json=args.json)
    return status
