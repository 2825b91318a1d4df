"""How much of each program was compared."""

from __future__ import annotations

from collections.abc import Iterable

from kernelscope.comparison.flow.calls_and_values import LEAF, SERIES, Flow
from kernelscope.comparison.reference import ReferenceRun

from .blame import constants, with_parts


def compared_shares(run: ReferenceRun) -> dict[str, float]:
    """Of the values of each program that were computed from what it was given: those with a counterpart."""
    other = run.matching.flow
    return {
        "reference": _share(run.flow, run.matched),
        "other": _share(other, with_parts(other, run.matching.claimed)),
    }


def _share(flow: Flow, placed: Iterable[int]) -> float:
    known = set(placed)
    for value in flow.values:
        if value.sources and known.issuperset(value.sources):
            known.add(value.number)  # a copy of what has a counterpart
    own = constants(flow, known)
    made = [v.number for v in flow.values if v.call != LEAF and flow.calls[v.call].kind != SERIES]
    made = [number for number in made if number not in own]
    return sum(number in known for number in made) / len(made) if made else 1.0
