"""Calls that do the same in both programs, but for a number: an epsilon whose effect rounding hides."""

from __future__ import annotations

from kernelscope.comparison.reference import ReferenceRun
from kernelscope.comparison.result import Difference

from .explained import shown


def number_differences(run: ReferenceRun) -> list[Difference]:
    """The first of each line."""
    other, found = run.matching.flow, dict[object, Difference]()
    for each in run.other_numbers.values():
        theirs, ours = other.calls[each.theirs], run.flow.calls[each.call]
        numbers = f"{each.name}={_text(each.number)}", f"{each.name}={_text(each.reference)}"
        found.setdefault(
            (theirs.name, theirs.origin[:1], numbers),
            Difference(
                "number", shown(theirs), shown(ours), None, None, each.effect, each.noise, None, *numbers
            ),
        )
    return list(found.values())


def _text(number: float | str) -> str:
    return f"{number:.6g}" if isinstance(number, float) else number
