"""The process in which `kernelscope shadow` runs a script; its result goes to a file."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from kernelscope.processes.quick_start import only_this_process

from .api import shadow
from .result import ShadowResult


def main(argv: list[str]) -> int:
    split = argv.index("--")
    answer, options, words = Path(argv[0]), argv[1:split], argv[split + 1 :]
    failed, result = "", ShadowResult()
    try:
        with shadow(offload="--offload" in options, every="--every" in options) as result:
            result.command = words
            failed = run_words(words)
    finally:
        text = result.details() if "--verbose" in options else str(result)
        found = {"result": result.to_dict(), "text": text, "failed": failed}
        answer.write_text(json.dumps(found), encoding="utf-8")
    return 1 if failed else 0


def run_words(words: list[str]) -> str:
    """Why the script failed, or nothing."""
    try:
        start(words)
    except SystemExit as left:
        if left.code not in (None, 0):
            return f"it exited with {left.code}"
    except BaseException as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def start(words: list[str]) -> None:
    """A script or a module, as Python itself would run it."""
    with only_this_process():
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
            runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
