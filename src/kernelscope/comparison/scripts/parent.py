"""Two scripts in a child each, as the parent sees it."""

from __future__ import annotations

import tempfile
from typing import Any, TextIO

from kernelscope.comparison.result import ComparisonResult
from kernelscope.shadowing.script_parent import answer_of
from kernelscope.text.process_ends import how_it_ended

_CHILD = "kernelscope.comparison.scripts.child"


def compare_scripts(
    reference: list[str], other: list[str], *, verbose: bool, stdout: TextIO | None
) -> tuple[dict[str, Any], str]:
    """Run other.py …, then reference.py … on its values: the result as JSON and as text."""
    with tempfile.TemporaryDirectory(prefix="kernelscope-compare-") as folder:
        length = "verbose" if verbose else "short"
        answer, status = answer_of(_CHILD, ["other", folder, length], other, stdout)
        if answer is None or answer["failed"]:
            how = answer["failed"] if answer is not None else how_it_ended(status)
            return _without(f"{other[0]} failed: {how}")
        answer, status = answer_of(_CHILD, ["reference", folder, length], reference, stdout)
    if answer is None:
        return _without(f"{reference[0]} {how_it_ended(status)} before any result was available")
    return answer["result"], str(answer["text"])


def _without(problem: str) -> tuple[dict[str, Any], str]:
    return ComparisonResult(failed=problem).to_dict(), ""
