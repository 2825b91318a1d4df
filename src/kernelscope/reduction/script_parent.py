"""What `kernelscope reduce` does: a child searches.

A trial that ends the child is an outcome, too: another child goes on from the journal.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kernelscope.cli.program import script_words
from kernelscope.cli.programs.reduce import REPEATS, TIMEOUT
from kernelscope.errors import RunError
from kernelscope.processes.process_trees import end_tree, has_ended
from kernelscope.processes.signals import held_back, terminable
from kernelscope.text.file_names import file_name

from .journal import CRASHED, JOURNAL, RESULTS, TIMED_OUT, mark, reopen, underway

_MOST_CRASHES = 50
_LOOK = 0.2  # seconds


def reduce(args: argparse.Namespace) -> int:
    words = script_words(args, "reduce")
    folder = Path(args.output or f"{file_name(_stem(words))}-reduced")
    journal = folder / JOURNAL
    if args.repeats < 1:
        raise RunError("--repeats 0: each graph has to be tried at least once")
    if folder.exists() and not args.resume:
        raise RunError(f"{folder} is there already: add --resume to go on with it, or choose another with -o")
    if args.resume and not journal.exists():
        raise RunError(f"{journal} is not there: nothing to resume")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}") from None
    for name in RESULTS:
        (folder / name).unlink(missing_ok=True)
    journal.touch()
    reopen(journal)
    try:
        with terminable():
            result = _search(words, folder, journal, args)
    except KeyboardInterrupt as ended:
        again = ["kernelscope", "reduce", "--resume", "-o", str(folder), *_options(args), *words]
        print(
            f"\nkernelscope: {str(ended) or 'interrupted'}; {journal} has what was tried; go on with\n"
            f"  {shlex.join(again)}",
            file=sys.stderr,
        )
        raise
    return _tell(result, as_json=args.json)


def _options(args: argparse.Namespace) -> list[str]:
    """Those that were given, once more."""
    given = [("--repeats", args.repeats, REPEATS), ("--timeout", args.timeout, TIMEOUT)]
    words = [word for name, value, usual in given if value != usual for word in (name, str(value))]
    return words + ["--json"] * args.json


def _stem(words: list[str]) -> str:
    return words[1] if words[0] == "-m" else Path(words[0]).stem


def _search(words: list[str], folder: Path, journal: Path, args: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "kernelscope.reduction.script_child",
        str(folder),
        str(args.repeats),
        str(args.timeout),
        "--",
        *words,
    ]
    for _ in range(_MOST_CRASHES):
        child: subprocess.Popen[bytes] | None = None
        try:
            with held_back():  # with --json, stdout is for the result alone
                child = subprocess.Popen(command, stdout=sys.stderr if args.json else None)
            how = _wait(child, journal, args.timeout)
        except KeyboardInterrupt:
            if child is not None:
                end_tree(child)
            raise
        try:
            return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            pass
        trial = underway(journal)
        if trial is None:
            return {
                "problem": f"the script {how} before any graph could be tried; kernelscope run tells more"
            }
        mark(journal, trial[0], TIMED_OUT if how == TIMED_OUT else CRASHED)
        print(f"kernelscope: a trial {how}; going on without it", file=sys.stderr)
    return {"problem": f"{_MOST_CRASHES} trials crashed or hung; {journal} has them"}


def _wait(child: subprocess.Popen[bytes], journal: Path, timeout: int) -> str:
    """How it ended; where it takes too long, with all that it has started."""
    while not has_ended(child, _LOOK):
        trial = underway(journal)
        if trial is not None and time.time() - trial[1] > timeout:
            end_tree(child)
            return TIMED_OUT
    status = child.returncode
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


def _tell(result: dict[str, Any], *, as_json: bool) -> int:
    problem = result.get("problem", "")
    if as_json:
        print(json.dumps(result, indent=2))
    elif not problem:
        print(f"{result['failure']}\n")
        nodes = f"{result['nodes_before']} nodes → {result['nodes']}"
        print(f"{nodes}, {result['trials']} trials, {result['seconds']} s")
        print(result["code"])
        print(f"\n{result['script']} shows it with torch alone")
    if problem:
        print(f"kernelscope: {problem}", file=sys.stderr)
    return 2 if problem else 0
