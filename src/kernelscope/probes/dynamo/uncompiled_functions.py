"""Why Dynamo left functions uncompiled, as far as it counts that."""

from __future__ import annotations

from collections import Counter


def why_uncompiled() -> Counter[str]:
    """Dynamo's explanations so far, each on one line, and how often each was given."""
    from torch._dynamo.utils import counters

    found: Counter[str] = Counter()
    for explanation, times in counters["unimplemented"].items():
        lines = [line.strip() for line in explanation.splitlines()]
        hints = [line for line in lines if line.startswith("Hint: Set ")]
        found[" ".join(f"{line.rstrip('.')}." for line in (*lines[:1], *hints))] += times
    return found
