"""A script in a child that checks its kernels, as the parent sees it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from kernelscope.processes.process_trees import end_tree
from kernelscope.processes.signals import held_back
from kernelscope.text.process_ends import how_it_ended


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """What the child found, or why it found nothing."""

    form: dict[str, Any]
    text: str
    problem: str
    status: int


def shadow_script(
    words: list[str], *, offload: bool, every: bool, verbose: bool, stdout: TextIO | None
) -> ScriptAnswer:
    """Run script.py … or -m module … in a child; its own output goes to `stdout`."""
    options = ["--offload"] * offload + ["--every"] * every + ["--verbose"] * verbose
    answer, ended = answer_of("kernelscope.shadowing.script_child", options, words, stdout)
    if answer is None:
        return _without_answer(ended)
    form, status = answer["result"], int(answer["result"]["status"])
    problem = f"the script failed: {answer['failed']}" if answer["failed"] else ""
    if problem and status == 0:
        status = 2
        form |= {"status": status, "problem": problem}
    return ScriptAnswer(form, answer["text"], problem, status)


def answer_of(
    module: str, options: list[str], words: list[str], stdout: TextIO | None
) -> tuple[dict[str, Any] | None, int]:
    """What a module that runs a script in a child writes to its file, and the child's exit status."""
    with tempfile.TemporaryDirectory(prefix="kernelscope-script-") as folder:
        path = Path(folder) / "result.json"
        status = _run([sys.executable, "-m", module, str(path), *options, "--", *words], stdout)
        try:
            answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None, status
    return answer, status


def _run(command: list[str], stdout: TextIO | None) -> int:
    """Its exit status; if the wait is interrupted, it ends with everything that it has started."""
    child: subprocess.Popen[bytes] | None = None
    try:
        with held_back():
            child = subprocess.Popen(command, stdout=stdout)
        return child.wait()
    except BaseException:
        if child is not None:
            end_tree(child)
        raise


def _without_answer(status: int) -> ScriptAnswer:
    how = how_it_ended(status)
    problem = f"the script {how} before any result was available"
    return ScriptAnswer({"culprit": None, "culprits": [], "status": 2, "problem": problem}, "", problem, 2)
