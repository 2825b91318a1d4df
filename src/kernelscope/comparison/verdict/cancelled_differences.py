"""Steps that only one program takes, and that what follows takes out again: Adam does so with a factor."""

from __future__ import annotations

from collections.abc import Iterator

from kernelscope.comparison.differing_inputs import MARGIN
from kernelscope.comparison.flow.calls_and_values import LEAF, Call
from kernelscope.comparison.reference import ReferenceRun

from .explained import shown
from .twins import Twins

_MOST = 4
_FEW = 16  # numbers


def cancelled_steps(run: ReferenceRun, twins: Twins) -> list[str]:
    """A sentence for each line that changes what a call reads: its result differs, and no other one does."""
    found: dict[object, str] = {}
    for ours in run.flow.calls:
        lost = [n for n in ours.writes if n in run.unmatched and run.flow.values[n].numel >= _FEW]
        if len(ours.reads) < 2 or not lost or ours.is_copy:
            continue
        for step, theirs, is_ours in _changed(run, twins, ours):
            if not _differs(run, lost[0], theirs):
                continue
            if is_ours:
                said = (
                    f"{shown(step)} of the reference changes an input of {shown(ours)}, which "
                    f"{shown(theirs)} reads unchanged"
                )
            else:
                said = (
                    f"{shown(step)} changes an input of {shown(theirs)} that the reference leaves unchanged"
                )
            found.setdefault(
                (is_ours, step.name, step.origin[:1]),
                f"{said}; the results that both programs have are the same",
            )
        if len(found) >= _MOST:
            break
    return list(found.values())


def hidden_differences(run: ReferenceRun, twins: Twins) -> list[str]:
    """A sentence for each line whose result differs although what is computed from it is the same."""
    found: dict[object, str] = {}
    ours = {b: a for a, b in twins.pairs.items()}
    for number, close in sorted(twins.cancelled.items()):
        value, reference = run.matching.flow.values[number], run.flow.values[ours[number]]
        if LEAF in (value.call, reference.call) or value.numel < _FEW:
            continue
        call, own = run.matching.flow.calls[value.call], run.flow.calls[reference.call]
        if call.operator != own.operator or not _reads_the_same(twins, own, call):
            continue
        found.setdefault(
            (call.name, call.origin[:1]),
            f"{shown(call)} differs from {shown(own)} of the reference by {close.difference:.2g} of "
            f"its size, and rounding explains {close.noise:.2g}; what is computed from it is the same up "
            "to rounding, so the results do not show whether that is an error",
        )
    return list(found.values())[:_MOST]


def _reads_the_same(twins: Twins, ours: Call, theirs: Call) -> bool:
    places = twins.places(ours, theirs)
    return bool(places) and all(twins.is_same(a, b) for a, b in places)


def _changed(run: ReferenceRun, twins: Twins, ours: Call) -> Iterator[tuple[Call, Call, bool]]:
    """What made a value, and the call of the same operator that reads it where this one reads another.

    Or the reference's step that made what this call reads, where the other's reads it as it was before.
    """
    other, flow = run.matching.flow, run.flow
    for theirs in other.calls:
        if theirs.operator != ours.operator or theirs.turn != ours.turn or theirs.is_kernel:
            continue
        places = twins.places(ours, theirs)
        differing = [(a, b) for a, b in places if not twins.is_same(a, b)]
        if len(places) < 2 or len(differing) != 1:
            continue
        a, b = differing[0]
        made_by, own = other.values[b].call, flow.values[a].call
        if made_by != LEAF and a in twins.pairs and b not in run.matching.claimed:
            if any(twins.is_same(a, number) for number in other.calls[made_by].reads):
                yield other.calls[made_by], theirs, False
            continue
        is_lost = own != LEAF and a in run.unmatched
        if is_lost and any(twins.is_same(number, b) for number in flow.calls[own].reads):
            yield flow.calls[own], theirs, True


def _differs(run: ReferenceRun, ours: int, theirs: Call) -> bool:
    expected = run.unmatched[ours]
    values = [run.matching.flow.values[n] for n in theirs.writes]
    same = [v for v in values if v.numel == expected.tensor.numel() and v.eps]
    return bool(same) and all(
        v.number not in run.matching.claimed and run.matching.compare(v, expected).excess > MARGIN
        for v in same
    )
