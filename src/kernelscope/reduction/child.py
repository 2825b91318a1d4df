"""The process in which `kernelscope reduce` runs a script, and then tries its graphs."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

from ..repro.files import write
from ..run.errors import RunError
from ..shadowing.child import start
from .capture import capture
from .journal import Journal
from .opening import reduce_captured
from .progress import Progress
from .script import reduced_script
from .trials import Trials, shadow_check


def main(argv: list[str]) -> int:
    split = argv.index("--")
    folder, repeats, words = Path(argv[0]), int(argv[1]), argv[split + 1 :]
    began = time.monotonic()
    try:
        captured = capture(lambda: _run(words))
        progress = Progress(captured.nodes)
        trials = Trials(shadow_check, Journal(folder / "journal.jsonl", resume=True), repeats, progress.tell)
        progress.trials = trials
        found = reduce_captured(captured, trials)
        progress.end()
        path = write(reduced_script(found), folder)
    except RunError as error:
        (folder / "result.json").write_text(json.dumps({"problem": str(error)}))
        return 2
    told = {
        "script": str(path),
        "failure": str(found.failure),
        "nodes_before": found.nodes_before,
        "nodes": found.nodes,
        "trials": found.trials,
        "seconds": round(time.monotonic() - began, 2),
        "code": found.candidate.code,
    }
    (folder / "result.json").write_text(json.dumps(told))
    return 0


def _run(words: list[str]) -> None:
    with suppress(SystemExit):  # how a script ends
        start(words)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # the command that waits for this says so
        sys.exit(130)
