"""A script in a child that checks its compiled functions, as the parent sees it."""

from __future__ import annotations

from typing import Any, TextIO

from kernelscope.shadowing.script_parent import answer_of
from kernelscope.text.process_ends import how_it_ended


def check_script(
    words: list[str], *, dim: str, ops: str, verbose: bool, stdout: TextIO | None
) -> tuple[dict[str, Any], str]:
    """Run script.py … or -m module … in a child: the result as JSON and as text.

    `dim` is as on the command line.
    """
    options = [dim, ops, "verbose" if verbose else "short"]
    answer, status = answer_of("kernelscope.invariance.script_child", options, words, stdout)
    if answer is None:
        problem = f"the script {how_it_ended(status)} before any result was available"
        return {"first": None, "status": 2, "problem": problem, "functions": [], "notes": []}, ""
    return answer["result"], str(answer["text"])
