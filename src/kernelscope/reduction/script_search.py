"""The search of `kernelscope reduce`: runs a script up to its failure, and tries its graphs."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.private_files import write_text
from kernelscope.repro.files import write
from kernelscope.shadowing.script_child import start
from kernelscope.store.safety.origin import signed_text
from kernelscope.trials.gpu_faults import GpuLost
from kernelscope.trials.journal import FILE, REDUCE, Journal
from kernelscope.trials.progress_line import ProgressLine

from .api import reduce_captured
from .candidate_trials import CandidateTrials, shadow_check
from .capture import capture
from .script import reduced_script

RESULT = "result.json"


def search(folder: Path, repeats: int, words: list[str]) -> int:
    """The process's exit status; the result is in `result.json`."""
    began = time.monotonic()
    try:
        journal, progress = Journal(folder / FILE, REDUCE), ProgressLine()
        captured = capture(lambda: _run(words))
        trials = CandidateTrials(
            shadow_check, journal, repeats,
            lambda text: progress.show(text, trials.seconds_left(captured.nodes)),
        )  # fmt: skip
        found = reduce_captured(captured, trials)
        progress.end()
        path = write(reduced_script(found), folder)
    except RunError as error:
        write_text(folder / RESULT, json.dumps({"problem": str(error)}))
        return 2
    except GpuLost as lost:  # the command starts another process
        print(f"kernelscope: {lost}", file=sys.stderr)
        return 3
    result = {
        "script": str(path),
        "failure": str(found.failure),
        "nodes_before": found.nodes_before,
        "nodes": found.nodes,
        "trials": found.trials,
        "seconds": round(time.monotonic() - began, 2),
        "code": found.candidate.code,
        "signature": signed_text(path.read_text(encoding="utf-8", errors="surrogateescape")),
    }
    write_text(folder / RESULT, json.dumps(result))
    return 0


def _run(words: list[str]) -> None:
    here = os.getcwd()
    try:
        with suppress(SystemExit):
            start(words)
    finally:
        os.chdir(here)  # the path of the results is relative to it
