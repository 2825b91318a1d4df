"""What the process of `kernelscope reduce` does: it runs a script up to its failure, and tries its graphs."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.shadowing.script_child import start
from kernelscope.trials.gpu_faults import GpuLost

from .api import reduce_captured
from .capture import capture
from .journal import JOURNAL, Journal
from .progress import Progress
from .reducer import Reduction
from .trials import Trials, shadow_check


def search(folder: Path, repeats: int, words: list[str]) -> int:
    """The process's exit status; what was found is in `result.json`."""
    began = time.monotonic()
    try:
        journal = Journal(folder / JOURNAL, resume=True)
        captured = capture(lambda: _run(words), journal, _load_writing)
        progress = Progress(captured.nodes)
        trials = Trials(shadow_check, journal, repeats, progress.tell)
        progress.trials = trials
        found = reduce_captured(captured, trials)
        progress.end()
        path = _write(found, folder)
    except RunError as error:
        (folder / "result.json").write_text(json.dumps({"problem": str(error)}), encoding="utf-8")
        return 2
    except GpuLost as lost:  # the command starts another process
        print(f"kernelscope: {lost}", file=sys.stderr)
        return 3
    told = {
        "script": str(path),
        "failure": str(found.failure),
        "nodes_before": found.nodes_before,
        "nodes": found.nodes,
        "trials": found.trials,
        "seconds": round(time.monotonic() - began, 2),
        "code": found.candidate.code,
    }
    (folder / "result.json").write_text(json.dumps(told), encoding="utf-8")
    return 0


def _load_writing() -> None:
    """What is needed in the end takes a while to load."""
    from . import script  # noqa: F401


def _write(found: Reduction, folder: Path) -> Path:
    from kernelscope.repro.files import write

    from .script import reduced_script

    return write(reduced_script(found), folder)


def _run(words: list[str]) -> None:
    here = os.getcwd()
    try:
        with suppress(SystemExit):  # how a script ends
            start(words)
    finally:
        os.chdir(here)  # the folder for the results is meant from here
