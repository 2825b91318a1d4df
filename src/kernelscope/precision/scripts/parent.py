"""A script in a child that measures its compiled functions, as the parent sees it."""

from __future__ import annotations

import json
from typing import Any, TextIO

from kernelscope.shadowing.script_parent import answer_of
from kernelscope.text.process_ends import how_it_ended


def map_script(
    words: list[str], options: dict[str, Any], *, stdout: TextIO | None
) -> tuple[dict[str, Any], str]:
    """Run script.py … or -m module … in a child: the result as JSON and as text.

    `options` has the keys output, tolerance, formats, ops and verbose.
    """
    answer, status = answer_of("kernelscope.precision.scripts.child", [json.dumps(options)], words, stdout)
    if answer is None:
        problem = f"the script {how_it_ended(status)} before any result was available"
        return {"status": 2, "problem": problem, "functions": [], "notes": []}, ""
    return answer["result"], str(answer["text"])
