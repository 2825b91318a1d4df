"""`kernelscope bisect`: which part of the compiler makes a script fail."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from pathlib import Path

from kernelscope.bisection.script_search import Request, bisect_script, folder_to_resume, next_folder
from kernelscope.cli.program import script_words
from kernelscope.errors import RunError
from kernelscope.processes.signals import terminable
from kernelscope.store import folder
from kernelscope.trials.settings import AXES, Outcome

EPILOG = """\
examples:
  kernelscope bisect train.py --epochs 1            what makes a kernel compute something else than eager?
  kernelscope bisect --check "python compare.py" train.py    fails when the command, run after it, does
  kernelscope bisect --fails-on exception train.py  what makes it raise, crash or hang?
  kernelscope bisect --predicate check.py:is_wrong train.py  is_wrong gets the script's global names
  kernelscope bisect --axis fusion --axis lowering train.py  look there only, as far as it goes
  kernelscope bisect --resume train.py              go on where the last one was interrupted

It stops at the finest axis that explains the failure; --all looks at every one.
Exit status: 0 a cause was found, 1 none of the switches helps, 2 there is nothing to look for.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bisect",
        help="find the config, pass, lowering, fusion or kernel that makes a script fail",
        description="Run a script again and again with parts of the compiler switched off.",
        usage="kernelscope bisect [options] (script.py | -m module) [arguments …]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    failing = parser.add_argument_group("when it fails")
    failing.add_argument(
        "--fails-on",
        choices=["shadow", "exception", "nan"],
        help="shadow (default): a kernel computes something else than eager; exception: it raises, "
        "crashes or hangs; nan: something makes a NaN",
    )
    failing.add_argument("--message", metavar="TEXT", help="of exceptions, only those with this text")
    failing.add_argument(
        "--check", metavar="COMMAND", help="run after the script; a status but 0 is a failure"
    )
    failing.add_argument(
        "--predicate", metavar="FILE:FUNCTION", help="true when the script's names are wrong"
    )
    search = parser.add_argument_group("how to search")
    search.add_argument("--axis", action="append", default=[], metavar="AXIS", help=", ".join(AXES))
    search.add_argument("--all", action="store_true", help="every axis, also when a finer one explains it")
    search.add_argument(
        "--no-workaround", action="store_true", help="stop when the cause is known: look for no setting"
    )
    search.add_argument(
        "--runs", type=int, default=3, metavar="N", help="of the unchanged script (default 3)"
    )
    search.add_argument(
        "--confidence",
        type=float,
        default=0.99,
        metavar="P",
        help="of a flaky failure's trials (default 0.99)",
    )
    search.add_argument(
        "--timeout", type=float, default=600, metavar="SECONDS", help="of one trial (default 600)"
    )
    search.add_argument("--spawn", action="store_true", help="a fresh process per trial instead of a fork")
    where = parser.add_argument_group("where to")
    where.add_argument("-o", dest="output", metavar="NAME", help="folder to make; default SCRIPT-bisect-1")
    where.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest bisection of this script, or with -o NAME",
    )
    where.add_argument("--json", action="store_true", help="print JSON (docs/bisect.md has the keys)")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    request = _request(args)
    home, stem = Path(folder.HOME), Path(request.words[-1 if args.module else 0]).stem
    stem = args.module[0] if args.module else stem
    if args.resume:
        path = folder_to_resume(args.output or "", home, stem)
    else:
        path = folder.create(Path(args.output)) if args.output else next_folder(home, stem)
    progress = Progress()
    try:
        with terminable():
            result = bisect_script(request, path.absolute(), progress.tell, progress.say)
    except KeyboardInterrupt as ended:
        progress.end()
        again = shlex.join(["kernelscope", "bisect", "--resume", "-o", str(path), *_words_again(args)])
        print(
            f"kernelscope: {str(ended) or 'interrupted'} after {progress.trials} trials; "
            f"go on with\n  {again}",
            file=sys.stderr,
        )
        raise
    finally:
        progress.end()
    print(json.dumps(result.to_json(), indent=2) if args.json else result)
    return result.status


def _request(args: argparse.Namespace) -> Request:
    conditions = {
        "check": args.check, "predicate": args.predicate, "exception": args.message,
    }  # fmt: skip
    given = [name for name, value in conditions.items() if value is not None]
    if args.fails_on and args.fails_on not in given:
        given.append(args.fails_on)
    if len(given) > 1:
        raise RunError(f"choose one condition: {' or '.join(given)}")
    condition = given[0] if given else "shadow"
    unknown = [axis for axis in args.axis if axis not in AXES]
    if unknown:
        raise RunError(f"--axis {unknown[0]}: there are {', '.join(AXES)}")
    return Request(
        tuple(_words(args)), condition, conditions.get(condition) or "",
        AXES if args.all else tuple(args.axis), args.runs, args.confidence, args.timeout,
        fork=not args.spawn, workaround=not args.no_workaround,
    )  # fmt: skip


def _words(args: argparse.Namespace) -> list[str]:
    return script_words(args, "bisect", "; for a command, use --check")


def _words_again(args: argparse.Namespace) -> list[str]:
    """The options that a journal remembers, and the script."""
    words: list[str] = []
    for name in ("fails_on", "message", "check", "predicate"):
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", getattr(args, name)]
    words += [word for axis in args.axis for word in ("--axis", axis)]
    return words + ["--all"] * args.all + _words(args)


class Progress:
    """One line on stderr that is written over; without a terminal, a line per trial."""

    def __init__(self) -> None:
        self.trials = 0
        self._is_live = sys.stderr.isatty()

    def tell(self, what: str, outcome: Outcome, seconds_left: float) -> None:
        self.trials += 1
        left = f", about {math.ceil(seconds_left)} s left" if seconds_left >= 1 else ""
        text = f"trial {self.trials}: {what}: {outcome.kind} ({outcome.seconds:.1f} s){left}"
        print(f"\r\x1b[K{text[:150]}" if self._is_live else text, end="" if self._is_live else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def say(self, text: str) -> None:
        """Something that concerns all trials: a line of its own."""
        print(f"kernelscope: {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_live and self.trials:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
