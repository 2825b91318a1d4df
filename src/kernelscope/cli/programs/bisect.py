"""`kernelscope bisect`: which part of the compiler makes a script fail."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from kernelscope.bisection.result import BisectResult
from kernelscope.bisection.script_search import Request, bisect_script, folder_to_resume, next_folder
from kernelscope.cli.arguments import (
    SCRIPT_USAGE,
    add_check,
    add_json,
    add_ray,
    add_script,
    chosen_check,
    given_ray,
    ray_of,
)
from kernelscope.errors import RunError
from kernelscope.options import count, number
from kernelscope.processes.program_words import script_words, stem_of
from kernelscope.processes.signals import terminable
from kernelscope.store import folder
from kernelscope.text.amounts import counted
from kernelscope.text.terminal_size import fitted
from kernelscope.trials.progress_line import ProgressLine
from kernelscope.trials.settings import AXES

DESCRIPTION = "Run a script repeatedly with parts of the compiler switched off."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope bisect train.py --epochs 1            find why a kernel's result differs from eager
  kernelscope bisect --check "python compare.py" train.py    fails if the command, run after it, fails
  kernelscope bisect --fails-on exception train.py  find why it raises an exception, crashes or hangs
  kernelscope bisect --predicate check.py:is_wrong train.py  is_wrong gets the script's global names
  kernelscope bisect --axis fusion --axis lowering train.py  search only these axes, to the end
  kernelscope bisect --resume train.py              continue an interrupted bisection
  kernelscope bisect --ray=10.0.0.7:6379 train.py   run its trials on a Ray cluster

The search stops at the finest axis that explains the failure; --all searches every axis.
Exit status: 0 a cause was found, 1 no switch helps, 2 the script does not fail.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_check(
        parser.add_argument_group("what counts as a failure"),
        "shadow: a kernel's result differs from eager; exception: the script raises, exits with a status, "
        "crashes or hangs; nan: a kernel makes a NaN; default: shadow, and exception where all kernels "
        "are right",
    )
    add = parser.add_argument_group("how to search").add_argument
    add("--axis", action="append", default=[], metavar="AXIS",
        help=f"search only this axis; repeatable: {', '.join(AXES)}")  # fmt: skip
    add("--all", action="store_true", help="search every axis, even after a cause was found")
    add("--no-workaround", action="store_true", help="do not search for a workaround")
    add("--runs", type=count, default=3, metavar="N", help="number of baseline runs (default 3)")
    add("--confidence", type=number, default=0.99, metavar="P",
        help="for flaky failures: repeat each trial until it is this certain (default 0.99)")  # fmt: skip
    add("--timeout", type=number, default=600.0, metavar="SECONDS",
        help="limit for one trial (default 600)")  # fmt: skip
    add("--spawn", action="store_true", help="use a new process for each trial instead of a fork")
    add_ray(parser, "run trials on a Ray cluster, several at once")
    where = parser.add_argument_group("output")
    where.add_argument("-o", dest="output", metavar="NAME",
                       help="folder to create; default kscope-runs/SCRIPT-bisect-1")  # fmt: skip
    where.add_argument("--resume", action="store_true",
                       help="continue the newest bisection of this script, or -o NAME")  # fmt: skip
    add_json(parser, "bisect")
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    request = _request(args)
    with ray_of(args) as ray:
        result = _bisected(args, request, ray)
    print(json.dumps(result.to_json(), indent=2) if args.json else result)
    return result.status


def _bisected(args: argparse.Namespace, request: Request, ray: Any | None) -> BisectResult:
    home, stem = Path(folder.HOME), stem_of(args.module, args.command)
    if args.resume:
        path = folder_to_resume(args.output or "", home, stem)
    else:
        path = folder.create(Path(args.output)) if args.output else next_folder(home, stem)
    progress = ProgressLine()
    try:
        with terminable():
            return bisect_script(request, path.absolute(), progress, ray)
    except KeyboardInterrupt as ended:
        progress.end()
        again = ["kernelscope", "bisect", "--resume", "-o", str(path), *_given(args), *request.words]
        how = f"{str(ended) or 'interrupted'} after {counted(progress.trials, 'trial')}"
        text = f"kernelscope: {how}; continue with\n  {shlex.join(again)}"
        print(fitted(text, sys.stderr), file=sys.stderr)
        raise
    finally:
        progress.end()


def _request(args: argparse.Namespace) -> Request:
    check = chosen_check(args)
    unknown = [axis for axis in args.axis if axis not in AXES]
    if unknown:
        raise RunError(f"--axis {unknown[0]}: use one of {', '.join(AXES)}")
    refusal = "bisect runs a Python script or -m module; to run a command after it, use --check"
    return Request(
        tuple(script_words(args.module, args.command, refusal)), *(check or ("shadow", "")),
        AXES if args.all else tuple(args.axis), args.runs, args.confidence, args.timeout,
        fork=not args.spawn, workaround=not args.no_workaround, is_default=check is None,
    )  # fmt: skip


def _given(args: argparse.Namespace) -> list[str]:
    """The options that a journal remembers."""
    words: list[str] = []
    for name in ("fails_on", "message", "check", "predicate"):
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", getattr(args, name)]
    words += given_ray(args)
    return words + [word for axis in args.axis for word in ("--axis", axis)] + ["--all"] * args.all
