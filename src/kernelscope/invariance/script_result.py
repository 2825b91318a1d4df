"""What `kernelscope invariance` found in a script: one result for each compiled function that it called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.text.amounts import counted

from .result import InvarianceResult

_NOTHING = {
    "graph": "the script called no compiled function; --ops all checks modules that run eagerly",
    "all": "the script called no compiled function and no module",
}


def script_form(found: Sequence[InvarianceResult], ops: str, left_out: int, failed: str) -> dict[str, Any]:
    """As JSON: the first variant kernel of all functions, and each function."""
    first = next((each for each in found if each), None)
    problem = next((each.problem for each in found if each.problem), "") if found else _NOTHING[ops]
    if failed:
        problem = f"the script failed: {failed}"
    notes = [f"not checked: {counted(left_out, 'more function')}"] if left_out else []
    return {
        "first": first.first.to_dict() if first is not None and first.first is not None else None,
        "status": 1 if first is not None else 2 if problem else 0,
        "problem": problem,
        "functions": [each.to_dict() for each in found],
        "notes": notes,
    }


def script_text(found: Sequence[InvarianceResult], *, verbose: bool) -> str:
    texts = []
    for each in found:
        title = f"{each.function}:\n" if len(found) > 1 else ""
        texts.append(title + (each.details() if verbose else str(each)))
    return "\n\n".join(texts)
