"""A process that runs trials of a script: it reads requests from one pipe and answers through another."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import FILE, open_private
from kernelscope.processes.quick_start import importing

from .checks import check_named
from .gpu_faults import gpu_is_lost
from .in_process import InProcessTrials
from .outcome import Outcome
from .programs import Script
from .settings import FOUND, Settings, Switch


def serve(job: dict[str, Any], requests: str, answers: str) -> None:
    """Answer requests until the pipe is closed."""
    home = Path(job["home"])
    with open(requests, encoding="utf-8") as source, open(answers, "w", encoding="utf-8") as sink:
        try:
            check = check_named(job["check"], job["what"])
            trials = InProcessTrials(Script(job["words"]), check, Path(job["caches"]), prints_errors=True)
        except RunError as error:
            print(json.dumps({"error": str(error)}), file=sink, flush=True)
            return
        for line in source:
            request = json.loads(line)
            _write_output_to(home / "logs" / f"trial-{request['number']}.log")
            try:
                outcome = _run(trials, request, home)
                answer: dict[str, Any] = {"outcome": outcome.to_json(), "spent": gpu_is_lost()}
            except RunError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), file=sink, flush=True)
            sys.stdout.flush()
            sys.stderr.flush()


def _run(trials: InProcessTrials, request: dict[str, Any], home: Path) -> Outcome:
    settings = Settings.from_json(request["settings"])
    if not request["discover"]:
        return trials.run(settings)
    met: set[tuple[str, str]] = set()
    with open_private(home / FOUND, "w", encoding="utf-8") as file:

        def write(switch: Switch) -> None:
            if (switch.axis, switch.name) not in met:
                met.add((switch.axis, switch.name))
                print(json.dumps(switch.to_json()), file=file, flush=True)

        return trials.run(settings, write)


def _write_output_to(path: Path) -> None:
    """Send what the program prints to the trial's own log."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    with importing():  # before the first request
        from kernelscope.compiler_control.preload import load_compiler

        load_compiler()
    serve(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2], sys.argv[3])
