"""The process that trials are forked from: it has loaded all that compiling needs, and has run nothing."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from ..quick_start import importing


def main(job: dict[str, Any]) -> None:
    with importing():  # and so a child's garbage collector does not copy all of it
        from ..probes.compiler_warmth import is_forkable, warm_compiler
        from ..probes.cpp_readiness import CppReadiness
        from ..probes.patching import MovedTarget
        from . import child  # noqa: F401  # for those that are forked

        readiness = CppReadiness(assume=False)
        readiness.install()
        try:
            warm_compiler()
        except MovedTarget:
            raise
        except Exception:  # of the compiler, which says the same in each trial: no C++ compiler, perhaps
            traceback.print_exc()
        finally:
            readiness.remove()  # and its threads have ended
    _say({"forkable": is_forkable()})
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            _say({"status": os.waitstatus_to_exitcode(status)})
            continue
        pid = os.fork()
        if pid == 0:
            _be_child(job, request)
        _say({"pid": pid})


def _be_child(job: dict[str, Any], request: dict[str, str]) -> NoReturn:
    from .child import serve

    status = 1
    try:
        os.setsid()  # so that it is killed with all that it has started, and Ctrl-C is not for it
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  # to the end
        serve(job, request["requests"], request["answers"])
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)  # nothing of the zygote's is cleaned up here


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
