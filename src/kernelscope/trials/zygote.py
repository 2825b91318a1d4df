"""The process that trials are forked from: it has loaded all that compiling needs, and has run no kernel."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kernelscope.processes.process_trees import end_group, is_running
from kernelscope.processes.quick_start import importing
from kernelscope.processes.running_threads import other_threads


def main(job: dict[str, Any]) -> None:
    warm_up()
    answer(job)


def warm_up() -> None:
    """Load and use the compiler; threads that this needs have ended."""
    with importing():  # so that a fork's garbage collector does not copy all of it
        from kernelscope.compiler_control.isa_precheck import IsaPrecheck
        from kernelscope.compiler_control.preload import warm_compiler
        from kernelscope.probes.patching import MovedTarget

        from . import child  # noqa: F401  # for the forks

        precheck = IsaPrecheck()
        precheck.start()
        try:
            warm_compiler()
        except MovedTarget:
            raise
        except Exception:  # an error of the compiler comes back in each trial: no C++ compiler, perhaps
            traceback.print_exc()
        finally:
            precheck.finish()


def answer(job: dict[str, Any]) -> None:
    """Report whether this process can be forked; then fork, and kill forks, as requested."""
    _say({"threads": other_threads()})
    forks: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "end" in request:
            forks.discard(request["end"])
            _say(_end(request["end"]))
            continue
        pid = os.fork()
        if pid == 0:
            _be_child(job, request)
        forks.add(pid)
        _say({"pid": pid})
    for pid in forks:  # of a search that was killed: a trial that hangs would hang on
        end_group(pid)


def _be_child(job: dict[str, Any], request: dict[str, str]) -> NoReturn:
    from .child import serve

    status = 1
    try:
        os.setsid()  # so that it is killed with all that it has started, and Ctrl-C does not reach it
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115  # to the end
        serve(job, request["requests"], request["answers"])
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)  # without the zygote's cleanup


def _end(pid: int) -> dict[str, Any]:
    """Kill a trial: here, because its number stays its own until its parent waits for it."""
    was_running = is_running(pid)
    end_group(pid)
    _, status = os.waitpid(pid, 0)
    return {"was_running": was_running, "status": os.waitstatus_to_exitcode(status)}


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
