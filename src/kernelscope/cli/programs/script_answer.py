"""How a command that runs scripts ends: what it prints of the answer, and its exit status."""

from __future__ import annotations

import json
import sys
from typing import Any

from kernelscope.text.terminal_size import fitted


def print_answer(form: dict[str, Any], text: str, as_json: bool) -> int:
    """Why a result is inconclusive goes to stderr alone."""
    problem = form["problem"]
    if as_json:
        print(json.dumps(form, indent=2))
    elif rest := "\n".join(line for line in text.splitlines() if line != f"inconclusive: {problem}"):
        print(rest)
    if problem:
        print(fitted(f"kernelscope: {problem}", sys.stderr), file=sys.stderr)
    return int(form["status"])
