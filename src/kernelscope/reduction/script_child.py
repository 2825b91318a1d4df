"""The process in which `kernelscope reduce` runs a script, and then tries its graphs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kernelscope.config import all_of_environment
from kernelscope.processes.process_trees import end_children
from kernelscope.processes.quick_start import finish, importing, leave

from .journal import JOURNAL, RESULTS, TIMED_OUT

SURE = "--sure"  # nothing is assumed about the C++ compiler


def main(argv: list[str]) -> int:
    split = argv.index("--")
    folder, options, words = Path(argv[0]), argv[3:split], argv[split + 1 :]
    repeats, timeout = int(argv[1]), float(argv[2])
    environment = all_of_environment()  # which the program may change
    with importing():
        from kernelscope.compiler_control.isa_precheck import CppReadiness

        readiness = CppReadiness(assume=SURE not in options)
        readiness.install()
        from kernelscope.compiler_control.lazy_kernels import is_building_apart
        from kernelscope.compiler_control.preload import load_compiler

        from .script_search import search

        load_compiler()
    journal = folder / JOURNAL
    known = journal.stat().st_size
    try:
        status = search(folder, repeats, words)
    except Exception:
        if readiness.was_right(timeout) is not False:
            raise
    was_right = readiness.was_right(timeout)
    if was_right is None:
        told = "the C++ compiler has not said whether vector instructions can be used"
        print(f"kernelscope: {told} ({TIMED_OUT}, {timeout:.0f} s); they are assumed", file=sys.stderr)
    elif not was_right:
        # Then other code was tried than the program runs, and all of that counts for nothing.
        os.truncate(journal, known)
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)
        told = "vector instructions were assumed that the C++ compiler cannot use; the search begins anew"
        print(f"kernelscope: {told}", file=sys.stderr)
        finish()
        command = [sys.executable, "-m", "kernelscope.reduction.script_child", *argv[:3], SURE, "--"]
        os.execve(sys.executable, [*command, *words], environment)
    if readiness.give_up() or is_building_apart():
        end_children()  # compilers that nobody waits for any more; some may hang
    return status


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except KeyboardInterrupt:  # the command that waits for this says so
        status = 130
    leave(status)
