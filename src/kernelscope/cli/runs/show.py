"""`kernelscope show`: what a run recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelscope.cli.arguments import add_call_filter, add_ranks, add_run, call_filter, load_run
from kernelscope.cli.each_rank import each_rank
from kernelscope.errors import RunError
from kernelscope.options import count
from kernelscope.store import folder

DESCRIPTION = "Show what a run recorded."
PAGES = True
EPILOG = """\
examples:
  kernelscope show                              list the calls of the newest run, step by step
  kernelscope show --wide                       … one line each with all arguments, as in a pipe
  kernelscope show --kernel '*layer_norm*'      list the calls of some kernels
  kernelscope show --call 17                    show one call: arguments, hashes, grid, source line
  kernelscope show --call 17 --source           … with the code of its kernel
  kernelscope show --call 17 --value out_ptr0   draw a tensor (of a run with --values save)
  kernelscope show --sort time                  list where the time went (of a run with --time)
  kernelscope show --profile trace.json         … as measured by torch.profiler
  kernelscope show --crash                      show how the program ended, and what was executing
  kernelscope show --json train-3 | jq '.calls[0].kernel_name'

On a terminal, calls that repeat are folded, and a long list goes through $PAGER. -> written, <-> read and
written, +2 two more, # the start of a hash. RUN is a folder, or the name of a run in
./kscope-runs. The default is the newest run.
""".replace("<->", "↔").replace("->", "→")

_MOST = 200  # calls, where each is a line
_MOST_FOLDED = 5000  # calls, on a terminal


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_ranks(parser, "what these ranks recorded, one after the other")
    add = parser.add_argument
    add("--call", type=count, metavar="N", help="everything about one call")
    add("--value", metavar="ARGUMENT", help="with --call: draw a saved tensor")
    add("--before", action="store_true", help="with --value: the tensor before the launch, not after")
    add("-o", dest="output", metavar="FILE.npz", help="with --value: write the tensor to a new file")
    add("--changed", action="store_true", help="only calls that changed an argument in place")
    add("--sort", choices=["time"], help="list sites by total time, longest first")
    add("--profile", metavar="TRACE", help="list calls with their times in a trace of torch.profiler")
    add("--source", action="store_true", help="also print the code of the kernels")
    add("--crash", action="store_true", help="how the program ended, and in which kernel if it crashed")
    add_call_filter(parser, limit=_MOST)


def main(args: argparse.Namespace) -> int:
    if args.ranks is not None and (args.crash or args.output is not None):
        raise RunError("--ranks cannot be combined with --crash or -o; give --rank N")
    return each_rank(args, _main)


def _main(args: argparse.Namespace) -> int:
    from kernelscope.views import show
    from kernelscope.views.show_profile import show_profile
    from kernelscope.views.show_value import show_value
    from kernelscope.views.terminal import room

    as_json = args.json
    if args.crash:
        show.show_ending(folder.resolve(args.run), as_json=as_json)
        return 0
    run = load_run(args)
    if args.value is not None or args.output is not None or args.before:
        if args.call is None or args.value is None:
            raise RunError("--value, --before and -o need one tensor: give --call N --value ARGUMENT")
        output = None if args.output is None else Path(args.output)
        show_value(run, args.call, args.value, before=args.before, output=output, as_json=as_json)
    elif args.profile is not None:
        show_profile(run, Path(args.profile), call=args.call, by_time=args.sort == "time",
                     first=args.first, limit=args.limit, as_json=as_json)  # fmt: skip
    elif args.sort == "time":
        show.show_times(run, args.limit, as_json=as_json)
    elif args.call is not None:
        show.show_call(run, args.call, source=args.source, as_json=as_json)
    else:
        if room() and args.limit == _MOST:
            args.limit = _MOST_FOLDED
        wanted = call_filter(args, changed=args.changed)
        show.show_calls(run, wanted, source=args.source, as_json=as_json)
    return 0
