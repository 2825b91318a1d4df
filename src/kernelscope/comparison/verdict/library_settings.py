"""Calls that one program computes with fewer digits than the other, because a setting allows it."""

from __future__ import annotations

from kernelscope.comparison.flow.calls_and_values import LEAF
from kernelscope.comparison.reference import ReferenceRun
from kernelscope.comparison.result import FewerDigits
from kernelscope.shadowing.reference.small_errors.library_digits import name_of_digits

from .explained import shown

_SHARE = 1 / 64  # of one rounding: another order of additions in float32 moves a result less than that


def fewer_digits(run: ReferenceRun) -> list[FewerDigits]:
    """The first such call of each kind, and how many there are; only where the results show it."""
    found: dict[tuple[str, str], FewerDigits] = {}
    for number, theirs in sorted(run.matched.items(), key=lambda pair: pair[1]):
        value, other = run.flow.values[number], run.matching.flow.values[theirs]
        if LEAF in (value.call, other.call) or number not in run.close:
            continue
        ours, call, close = run.flow.calls[value.call], run.matching.flow.calls[other.call], run.close[number]
        if call.digits == ours.digits or close.difference < _SHARE * max(call.digits, ours.digits):
            continue  # a library need not make use of what a setting allows
        key = name_of_digits(call.digits), name_of_digits(ours.digits)
        known = found.get(key) or FewerDigits(*key, shown(call), shown(ours), 0.0, 0)
        found[key] = FewerDigits(
            *key, known.call, known.reference, max(known.difference, close.difference), known.times + 1
        )
    return list(found.values())
