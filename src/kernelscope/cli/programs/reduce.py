"""`kernelscope reduce`: the smallest graph of a script that still fails."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from kernelscope.cli.arguments import SCRIPT_USAGE, add_json, add_script
from kernelscope.errors import RunError
from kernelscope.options import count
from kernelscope.processes.program_words import script_words, stem_of
from kernelscope.text.amounts import counted
from kernelscope.text.terminal_size import fitted

DESCRIPTION = "Reduce what a script compiles to the smallest graph that fails in the same way."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope reduce train.py --epochs 1     writes ./train-reduced/reduced.py: the smallest graph that fails
  kernelscope reduce repro_graph_0.py        reduce a recorded graph; kernelscope repro --graph writes it
  kernelscope reduce --resume train.py       continue after Ctrl-C or a crash

The script runs up to the first kernel whose result differs from eager (found as by `kernelscope shadow`), or
to the first exception of the compiler. Then smaller and smaller parts of its graph are compiled and run, as
long as they fail in the same way: same verdict on the same kernel, or same exception.
Exit status: 0 a reduced script was written, 2 it was not.
"""
_REPEATS, _TIMEOUT = 1, 300


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-o", dest="output", default="", metavar="DIR", help="folder to create; default SCRIPT-reduced")
    add("--resume", action="store_true", help="continue from the journal in that folder")
    add("--repeats", type=count, default=_REPEATS, metavar="N",
        help="for flaky failures: try each graph up to N times")  # fmt: skip
    add("--timeout", type=count, default=_TIMEOUT, metavar="S",
        help=f"seconds for one trial (default {_TIMEOUT})")  # fmt: skip
    add_json(parser, "repro")
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.reduction.script_alone import reproduces_alone
    from kernelscope.reduction.script_parent import Search, open_folder
    from kernelscope.text.file_names import file_name

    words = script_words(args.module, args.command, "reduce runs a Python script or -m module, not a command")
    if args.repeats < 1:
        raise RunError("--repeats 0: use at least 1")
    folder = Path(args.output or f"{file_name(stem_of(args.module, args.command))}-reduced")
    open_folder(folder, resume=args.resume)
    # With --json, stdout is for the result alone.
    search = Search(words, folder, args.repeats, args.timeout, sys.stderr if args.json else None)
    try:
        result = search.run()
    except KeyboardInterrupt as ended:
        again = ["kernelscope", "reduce", "--resume", "-o", str(folder), *_given(args), *words]
        how = f"{str(ended) or 'interrupted'}; {search.journal} has the trials so far"
        text = f"\nkernelscope: {how}; continue with\n  {shlex.join(again)}"
        print(fitted(text, sys.stderr), file=sys.stderr)
        raise
    problem = result.get("problem", "")
    if not problem:
        alone = reproduces_alone(Path(result["script"]), args.timeout)
        result["reproduces_alone"] = alone
    if args.json:
        print(json.dumps(result, indent=2))
    elif not problem:
        nodes = f"{counted(result['nodes_before'], 'node')} → {result['nodes']}"
        print(f"{result['failure']}\n\n{nodes}, {counted(result['trials'], 'trial')}, {result['seconds']} s")
        print(f"{result['code']}\n\n{_alone(result['script'], alone, args.timeout)}")
    if problem:
        print(fitted(f"kernelscope: {problem}", sys.stderr), file=sys.stderr)
    return 2 if problem else 0


def _alone(script: str, reproduces: bool | None, timeout: int) -> str:
    if reproduces is None:
        return f"{script} did not finish within {timeout} s when it ran with torch alone"
    if reproduces:
        return f"{script} reproduces it with torch alone"
    return (
        f"{script} does not reproduce it with torch alone: something that the program does or imports may "
        "change the compiler"
    )


def _given(args: argparse.Namespace) -> list[str]:
    """The options that are not the default."""
    options = [("--repeats", args.repeats, _REPEATS), ("--timeout", args.timeout, _TIMEOUT)]
    words = [word for name, value, usual in options if value != usual for word in (name, str(value))]
    return words + ["--json"] * args.json
