"""A script several times in one process, each time from the same state and recorded to a folder of its own.

python -m kernelscope.determinism.repeated_script RUNS FOLDER OPTIONS [--recompile] -- SCRIPT | -m MODULE …
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import torch

from kernelscope.options import config_of, parse_options
from kernelscope.recording import Recording
from kernelscope.store import folder

from .api import compiling_anew
from .state import Generators


def main(words: list[str]) -> int:
    own, command = words[: words.index("--")], words[words.index("--") + 1 :]
    runs, home, config = int(own[0]), Path(own[1]), config_of(parse_options(own[2]))
    generators, modules, cwd = Generators(), set(sys.modules), os.getcwd()
    for number in range(runs):
        generators.put_back()
        recording = Recording(config, folder.create(folder.named(home / f"run-{number}")))
        recording.open()
        try:
            with compiling_anew() if "--recompile" in own else nullcontext():
                status = _execute(command)
        except Exception:
            traceback.print_exc()
            status = 1
        finally:
            os.chdir(cwd)  # the script may be in another folder, which it may have removed
            recording.close()
        if status:
            if number:
                print(
                    f"kernelscope: the script finished {number} times in this process, and then failed; "
                    "if it can run only once per process, use --fresh",
                    file=sys.stderr,
                )
            return status
        _forget(modules, _home(command))
    return 0


def _home(command: list[str]) -> str:
    """Where the script's own modules are."""
    return os.getcwd() if command[0] == "-m" else str(Path(command[0]).resolve().parent)


def _execute(command: list[str]) -> int:
    """As Python would: the script, or -m module."""
    argv, path = sys.argv, sys.path[:]
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path[0] = _home(command)
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0


def _forget(before: set[str], home: str) -> None:
    """The script's own modules load again next time, with whatever state they keep; libraries stay."""
    torch.compiler.reset()
    here = home + os.sep
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith((here, os.getcwd() + os.sep)) and "site-packages" not in file:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
