"""Why Dynamo left functions uncompiled, as far as it counts that."""

from __future__ import annotations

from collections import Counter


def why_uncompiled() -> Counter[str]:
    """Dynamo's explanations so far, each on one line, and how often each was given."""
    from torch._dynamo.utils import counters

    found: Counter[str] = Counter()
    for reason, times in counters["unimplemented"].items():
        lines = [line.strip() for line in reason.splitlines()]
        hints = [line for line in lines if line.startswith("Hint: Set ")]
        told = [*lines[:1], explanation(reason), *hints]
        found[" ".join(f"{line.rstrip('.')}." for line in told if line)] += times
    return found


def explanation(reason: str) -> str:
    """What Dynamo says below its name for a graph break; empty without such a line."""
    words, rest = "Explanation:", reason.strip().splitlines()[1:]
    why = next((line.partition(words)[2].strip() for line in rest if words in line), "")
    if why.endswith(":"):  # a list follows
        listed = [line.strip()[2:] for line in rest if line.strip().startswith("- ")]
        why = f"{why} {'; '.join(item.rstrip('.') for item in listed)}".strip(" :")
    return why.rstrip(".")
