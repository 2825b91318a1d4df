"""The process in which `kernelscope reduce` runs a script, and then tries its graphs."""

from __future__ import annotations

import sys
from pathlib import Path

from kernelscope.processes.process_trees import end_children
from kernelscope.processes.quick_start import importing, leave


def main(folder: str, repeats: str, *words: str) -> int:
    with importing():
        from kernelscope.compiler_control.isa_precheck import IsaPrecheck
        from kernelscope.compiler_control.preload import load_compiler

        precheck = IsaPrecheck()
        precheck.start()
        from .script_search import search

        load_compiler()
    status = search(Path(folder), int(repeats), list(words))
    if precheck.is_running():
        end_children()  # a compiler that may hang
    return status


if __name__ == "__main__":
    try:
        status = main(*sys.argv[1:])
    except KeyboardInterrupt:  # the command that waits for this process reports it
        status = 130
    leave(status)
