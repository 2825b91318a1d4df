"""The process in which `kernelscope reduce` runs a script, and then tries its graphs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..config import all_of_environment
from ..quick_start import finish, importing, leave
from .journal import JOURNAL, RESULTS

SURE = "--sure"  # nothing is assumed about the C++ compiler


def main(argv: list[str]) -> int:
    split = argv.index("--")
    folder, repeats, options, words = Path(argv[0]), int(argv[1]), argv[2:split], argv[split + 1 :]
    environment = all_of_environment()  # which the program may change
    with importing():
        from ..probes.cpp_readiness import CppReadiness

        readiness = CppReadiness(assume=SURE not in options)
        readiness.install()
        from ..probes.compiler_warmth import load_compiler
        from .searching import search

        load_compiler()
    journal = folder / JOURNAL
    known = journal.stat().st_size
    try:
        status = search(folder, repeats, words)
    except Exception:
        if readiness.was_right():
            raise
    if not readiness.was_right():
        # Then other code was tried than the program runs, and all of that counts for nothing.
        os.truncate(journal, known)
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)
        told = "vector instructions were assumed that the C++ compiler cannot use; the search begins anew"
        print(f"kernelscope: {told}", file=sys.stderr)
        finish()
        command = [sys.executable, "-m", "kernelscope.reduction.child", str(folder), str(repeats), SURE, "--"]
        os.execve(sys.executable, [*command, *words], environment)
    readiness.remove()
    return status


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except KeyboardInterrupt:  # the command that waits for this says so
        status = 130
    leave(status)
