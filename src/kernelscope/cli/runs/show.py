"""`kernelscope show`: its options. What it does is in `showing`, so that --help need not load it."""

from __future__ import annotations

import argparse

from kernelscope.cli.arguments import add_choice_of_calls, add_run, count

EPILOG = """\
examples:
  kernelscope show                              the first calls of the newest run
  kernelscope show --kernel '*layer_norm*'      those of some kernels
  kernelscope show --call 17                    one call: arguments, hashes, grid, source line
  kernelscope show --call 17 --source           the code of its kernel
  kernelscope show --call 17 --value out_ptr0   a picture of a tensor (of a run with --values save)
  kernelscope show --sort time                  where the time went (of a run with --time)
  kernelscope show --profile trace.json         … as torch.profiler measured it
  kernelscope show --crash                      what was executing when the program died
  kernelscope show --json train-3 | jq '.calls[0].kernel_name'

-> written, <-> read and written, # the start of a hash. RUN is a folder or a name in ./kscope-runs;
left out, it is the newest run.
"""
_LIMIT = 200


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "show",
        help="the calls of a run, one call, a kernel's source, or a crash",
        description="Show what a run recorded.",
        epilog=EPILOG.replace("<->", "↔").replace("->", "→"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--call", type=count, metavar="N", help="everything about one call")
    add_choice_of_calls(parser)
    parser.add_argument("--value", metavar="ARGUMENT", help="with --call: a picture of a saved tensor")
    parser.add_argument("--before", action="store_true", help="with --value: before the launch, not after")
    parser.add_argument("-o", dest="output", metavar="FILE.npz", help="with --value: write it to a new file")
    parser.add_argument("--changed", action="store_true", help="calls that changed an argument in place")
    parser.add_argument("--sort", choices=["time"], help="sites by the time they took, longest first")
    parser.add_argument(
        "--profile",
        metavar="TRACE",
        help="calls with their times in a trace of torch.profiler",
    )
    parser.add_argument("--source", action="store_true", help="the code of the kernels, too")
    parser.add_argument("--crash", action="store_true", help="how the program died, and in which kernel")
    parser.add_argument("--first", type=count, default=0, metavar="N", help="begin at call N")
    parser.add_argument(
        "--limit", type=count, default=_LIMIT, metavar="N", help=f"at most N calls ({_LIMIT}); 0: all"
    )
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.views.show import show

    return show(args)
