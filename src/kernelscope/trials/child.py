"""A process that runs trials of a script: it is asked through one pipe and answers through another."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.processes.quick_start import importing

from .failure_conditions import condition_of
from .gpu_faults import gpu_is_lost
from .in_process import Engine
from .programs import Script
from .settings import FOUND, Outcome, Settings, Switch


def serve(job: dict[str, Any], requests: str, answers: str) -> None:
    """Answer until nobody asks any more."""
    home = Path(job["home"])
    with open(requests, encoding="utf-8") as asked, open(answers, "w", encoding="utf-8") as told:
        try:
            program, condition = Script(job["words"]), condition_of(job["condition"])
            engine = Engine(program, condition, Path(job["caches"]), prints_errors=True)
        except RunError as error:
            print(json.dumps({"error": str(error)}), file=told, flush=True)
            return
        for line in asked:
            request = json.loads(line)
            _write_output_to(home / "logs" / f"trial-{request['number']}.log")
            try:
                outcome = _run(engine, request, home)
                answer = {"outcome": outcome.to_json(), "spent": gpu_is_lost()}
                print(json.dumps(answer), file=told, flush=True)
            except RunError as error:
                print(json.dumps({"error": str(error)}), file=told, flush=True)
            sys.stdout.flush()
            sys.stderr.flush()


def _run(engine: Engine, request: dict[str, Any], home: Path) -> Outcome:
    settings = Settings.from_json(request["settings"])
    if not request["discover"]:
        return engine.run(settings)
    met: set[tuple[str, str]] = set()
    with (home / FOUND).open("w", encoding="utf-8") as file:

        def tell(switch: Switch) -> None:
            if (switch.axis, switch.name) not in met:
                met.add((switch.axis, switch.name))
                print(json.dumps(switch.to_json()), file=file, flush=True)

        return engine.run(settings, tell)


def _write_output_to(path: Path) -> None:
    """What the program prints goes to the trial's own log."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    with importing():  # before anybody asks
        from kernelscope.compiler_control.preload import load_compiler

        load_compiler()
    serve(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2], sys.argv[3])
