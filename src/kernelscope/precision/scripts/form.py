"""What `kernelscope precision` found in a script: one map for each compiled function that it called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.precision.result import PrecisionMap
from kernelscope.text.amounts import counted

_NOTHING = {
    "graph": "the script called no compiled function; --ops all measures modules that run eagerly",
    "all": "the script called no compiled function and no module",
}


def script_form(found: Sequence[PrecisionMap], ops: str, left_out: int, failed: str) -> dict[str, Any]:
    problem = next((each.problem for each in found if each.problem), "") if found else _NOTHING[ops]
    if failed:
        problem = f"the script failed: {failed}"
    notes = [f"not measured: {counted(left_out, 'more function')}"] if left_out else []
    return {
        "status": 1 if any(found) else 2 if problem else 0,
        "problem": problem,
        "functions": [each.to_dict() for each in found],
        "notes": notes,
    }


def script_text(found: Sequence[PrecisionMap], *, verbose: bool) -> str:
    return "\n\n".join(each.details() if verbose else str(each) for each in found)
