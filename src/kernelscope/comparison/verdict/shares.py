"""How much of each program was compared, and how closely."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from kernelscope.comparison.flow.calls_and_values import LEAF, SERIES, Flow
from kernelscope.comparison.reference import ReferenceRun

from .blame import constants, with_parts


def compared_shares(run: ReferenceRun, ours: set[int], theirs: set[int]) -> dict[str, float]:
    """Of the values of each program that were computed from what it was given: those with a counterpart.

    `ours` and `theirs` have one in several values together.
    """
    other = run.matching.flow
    return {
        "reference": _share(run.flow, {*run.matched, *ours}),
        "other": _share(other, with_parts(other, run.matching.claimed) | theirs),
    }


def smallest_error(run: ReferenceRun) -> tuple[float, float]:
    """Of the results that were compared: the smallest error that would be seen, in the middle and at most."""
    found = [each.smallest for number, each in run.close.items() if _is_data(run, number) and each.smallest]
    return (median(found), max(found)) if found else (0.0, 0.0)


def _is_data(run: ReferenceRun, number: int) -> bool:
    value = run.flow.values[number]
    return bool(value.eps) and run.matching.says_much(run.matched[number])


def _share(flow: Flow, placed: Iterable[int]) -> float:
    known = set(placed)
    for value in flow.values:
        if value.sources and known.issuperset(value.sources):
            known.add(value.number)  # a copy of what has a counterpart
    own = constants(flow, known)
    made = [v.number for v in flow.values if v.call != LEAF and flow.calls[v.call].kind != SERIES]
    made = [number for number in made if number not in own]
    return sum(number in known for number in made) / len(made) if made else 1.0
