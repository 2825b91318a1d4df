"""`kernelscope why`: from a script to what is wrong with it, with the other commands."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from kernelscope.bisection.script_search import Request
from kernelscope.cli.arguments import (
    SCRIPT_USAGE,
    add_check,
    add_json,
    add_script,
    chosen_check,
    seconds_from,
)
from kernelscope.processes.program_words import script_words, stem_of
from kernelscope.store import folder
from kernelscope.text.file_names import file_name

DESCRIPTION = "Find out what is wrong with a script: a crash, NaN, wrong or varying results, or compiling."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope why train.py --epochs 1           find out what is wrong, and write a bug report if it is a bug
  kernelscope why --quick train.py              without the search through the compiler
  kernelscope why --timeout 600 train.py        stop after ten minutes with what is known by then
  kernelscope why --predicate check.py:is_wrong train.py   is_wrong gets the script's global names

Uses run, shadow, determinism, bisect, reduce, report and issue, as far as they are needed. Each of them runs
the script: one that changes files changes them each time. What it prints goes to stderr the first time, and
to output.txt in the folder after that.
Exit status: 0 nothing is wrong, 1 something is wrong, 2 inconclusive, 130 interrupted.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    failure = parser.add_argument_group("what counts as a failure (default: all that can be found)")
    add_check(failure, "only this, as for bisect")
    add = parser.add_argument_group("how to search").add_argument
    add("--quick", action="store_true", help="do not search for the part of the compiler (bisect, reduce)")
    add("--timeout", type=seconds_from(0), default=0.0, metavar="SECONDS",
        help="stop the search after this many seconds, and print what is known (0: no limit)")  # fmt: skip
    where = parser.add_argument_group("output")
    where.add_argument("-o", dest="output", metavar="NAME",
                       help="folder to create; default kscope-runs/SCRIPT-why-1")  # fmt: skip
    add_json(parser, "why")
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.diagnosis.answer_text import answer_lines
    from kernelscope.diagnosis.diagnose import Diagnosis
    from kernelscope.diagnosis.progress import Progress
    from kernelscope.diagnosis.question import Question

    words = script_words(args.module, args.command, "why runs a Python script or -m module, not a command")
    stem = stem_of(args.module, args.command)
    question = Question(words, stem, _check_request(args, words), args.quick, args.timeout)
    path = (
        folder.create(Path(args.output))
        if args.output
        else folder.create_numbered(Path(folder.HOME), f"{file_name(stem)}-why")
    )
    with open(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace") as stream:
        diagnosis = Diagnosis(question, path, Progress(stream))
        answer = diagnosis.run()
    print(json.dumps(answer.to_json(), indent=2) if args.json else "\n".join(answer_lines(answer)))
    return diagnosis.status


def _check_request(args: argparse.Namespace, words: list[str]) -> Request | None:
    """None where all kinds of failure are looked for."""
    check = chosen_check(args)
    return Request(tuple(words), *check) if check else None
