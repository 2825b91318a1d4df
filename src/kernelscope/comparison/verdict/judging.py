"""From what a reference run found to the first difference."""

from __future__ import annotations

import torch

from kernelscope.comparison.differing_inputs import MARGIN
from kernelscope.comparison.flow.accumulation import is_same_turn
from kernelscope.comparison.flow.calls_and_values import LEAF, SERIES, Call, Flow, Value
from kernelscope.comparison.reference import ReferenceRun
from kernelscope.comparison.result import Amplifier, ComparisonResult, Difference

from .blame import Unmatched, constants, differing_ends, own_steps, with_parts
from .cancelled_differences import cancelled_steps, hidden_differences
from .explained import Explained, shown
from .first_steps import right_in_first_steps
from .last_steps import LastSteps
from .library_settings import fewer_digits
from .number_differences import number_differences
from .parts_and_wholes import differing_together, same_in_sum, same_together
from .shares import compared_shares, smallest_error
from .twins import Twins, tainted, with_doubtful

_GAIN = 8.0
_MOST_AMPLIFIERS = 10
_IN_PARTS = (
    "the reference adds up the gradients of a batch in parts, and the other program computes the batch at "
    "once or in other parts; the program with the whole batch has to be the reference"
)


def judged(run: ReferenceRun, failures: list[str]) -> ComparisonResult:
    """The first call of the other program that made something wrong of what was right."""
    other, twins = run.matching.flow, Twins(run)
    right = {a: b for a, b in run.matched.items() if run.matching.says_much(b)}
    ours, theirs = own_steps(run.flow, other, right)
    same, same_there = together = same_together(run)
    twins.forgive(same_there)
    here = Unmatched(run.flow, set(twins.pairs), ours | same)
    placed = with_parts(other, twins.pairs.values())
    same_there = same_there | right_in_first_steps(run) | same_in_sum(run) | _added_to_zeros(run, placed)
    there = Unmatched(other, placed, theirs | same_there)
    ours, theirs = differing_ends(here, there)
    ours_together, theirs_together = differing_together(run, here, there)
    last = LastSteps(run, twins, here, there)
    ours, theirs = ours | ours_together, theirs | theirs_together | last.added
    ours |= run.absorbed.keys()
    theirs |= {number for found in run.absorbed.values() for number in found}
    theirs = {number for number in theirs if not _is_explained(run, other.values[number])}
    wrong = with_doubtful(other, set(twins.close) | there.leading_to(theirs), twins.doubtful)
    bad = tainted(other, wrong, set(run.matching.claimed))
    first = [c for c in other.calls if not wrong.isdisjoint(c.writes) and bad.isdisjoint(c.reads)]
    lost = here.leading_to(ours) | {a for a, b in twins.pairs.items() if b in twins.close}
    found = [_rounded(run, call, value) for call, value in run.rounded]
    explained = Explained(run, twins, lost, here, there)
    begun = {(source := _source_of_part(run, each)).index: source for each in first}
    found += [explained.of(call) for call in begun.values()]
    found += [_stopped(run, *each) for each in last.missing] if not first else []
    found += [_returned(run, *each) for each in last.exchanged] if not found else []
    named = {each.call.index for each in found}
    found += [each for each in number_differences(run) if each.call.index not in named]
    found = _sorted(found)
    in_parts = bool(found) and run.matching.sums.are_others(run.flow)
    return ComparisonResult(
        first=found[0] if found and not in_parts else None, others=found[1:] if not in_parts else [],
        failed=_IN_PARTS if in_parts else "", fewer_digits=fewer_digits(run),
        amplifiers=_amplifiers(run),
        calls={"reference": _count(run.flow), "other": _count(other)},
        values={
            "reference": len(run.flow.values), "other": len(other.values), "matched": len(run.matched),
            "differing": len(bad),
        },
        shares=compared_shares(run, *together), failures=[*failures, *run.failures],
        notes=[
            *_unequal_results(run),
            *([*cancelled_steps(run, twins), *hidden_differences(run, twins)] if not found else []),
        ],
        smallest=smallest_error(run),
    )  # fmt: skip


def _sorted(found: list[Difference]) -> list[Difference]:
    """By call; several that begin at one call are one."""
    distinct = {(each.kind, each.call.index, each.call.name): each for each in reversed(found)}
    return sorted(distinct.values(), key=lambda each: each.call.index)


def _source_of_part(run: ReferenceRun, call: Call) -> Call:
    """Where what it reads is right, but only a part of what the reference has: the call that began it."""
    other, found = run.matching.flow, call
    while part := next((n for n in found.reads if n in run.matching.in_part), None):
        found = other.calls[other.values[part].call]
    return found


def _count(flow: Flow) -> int:
    return sum(call.kind != SERIES and not call.is_continued for call in flow.calls)


def _added_to_zeros(run: ReferenceRun, placed: set[int]) -> set[int]:
    """Values with a counterpart, in memory that held zeros: so gradients get into a memory of all of them."""
    other, kept = run.matching.flow, run.matching.kept.tensors
    filled, found = constants(other, placed), set[int]()
    for call in other.calls:
        added = [n for n in call.reads if n in placed and n not in filled]
        if call.operator != "add" or len(call.reads) != 2 or len(added) != 1:
            continue
        if filled.isdisjoint(call.reads):
            continue
        found.update(
            n for n in call.writes
            if other.values[n].readers and torch.equal(kept[n].flatten(), kept[added[0]].flatten())
        )  # fmt: skip
    return found


def _is_explained(run: ReferenceRun, value: Value) -> bool:
    """Whether it is a value that was found, or one of the reference's that was not, but for rounding.

    Between the same backward passes: what an average was a step before explains nothing.
    """
    kept, other = run.matching.kept.tensors, run.matching.flow
    made_by = other.calls[value.call] if value.call != LEAF else None
    for number in run.matching.claimed:
        if made_by is not None and not _is_of_turn(other, number, made_by):
            continue
        if kept[number].shape == kept[value.number].shape and torch.equal(kept[number], kept[value.number]):
            return True  # a kernel may write a value to two places
    for number, expected in run.unmatched.items():
        ours = run.flow.values[number]
        if made_by is not None and not _is_of_turn(run.flow, number, made_by):
            continue
        if ours.numel == value.numel and bool(ours.eps) == bool(value.eps):
            found = run.matching.compare(value, expected)
            if found.excess <= MARGIN:
                return True
    return False


def _is_of_turn(flow: Flow, number: int, made_by: Call) -> bool:
    call = flow.values[number].call
    return call == LEAF or is_same_turn(flow.calls[call], made_by)


def _rounded(run: ReferenceRun, call: Call, value: Value) -> Difference:
    made_by = run.matching.flow.calls[value.call]
    return Difference("rounds-whole-numbers", shown(made_by), shown(call))


def _unequal_results(run: ReferenceRun) -> list[str]:
    ours, theirs = len(run.flow.results), len(run.matching.flow.results)
    if ours == theirs:
        return []
    counts = f"the reference returns {ours} tensors of floats and the other program {theirs}"
    return [f"{counts}: it is not known which of these correspond, so they were not compared as results"]


def _stopped(run: ReferenceRun, ours: int, theirs: int) -> Difference:
    """The other program leaves what the reference goes on with."""
    other, step = run.matching.flow, run.flow.calls[run.flow.values[ours].call]
    made_by = other.values[theirs].call
    last = other.calls[made_by] if made_by != LEAF else other.calls[-1]
    return Difference("stops", shown(last), shown(step))


def _returned(run: ReferenceRun, ours: int, theirs: int) -> Difference:
    """Both programs have computed it, and the other one returns it in the place of another result."""
    other, made_by = run.matching.flow, run.flow.values[ours].call
    step = run.flow.calls[made_by] if made_by != LEAF else None
    last = other.calls[number] if (number := other.values[theirs].call) != LEAF else other.calls[-1]
    return Difference("returns", shown(last), shown(step) if step is not None else None)


def _amplifiers(run: ReferenceRun) -> list[Amplifier]:
    by_line: dict[object, Amplifier] = {}
    for each in run.amplified:
        if each.gain < _GAIN and not each.share:
            continue
        call = run.flow.calls[each.call]
        key = call.name, call.origin[:1]
        known = by_line.get(key) or Amplifier(shown(call), 0.0, 0.0, 0)
        gain, share = max(each.gain, known.gain), max(each.share, known.flipped)
        by_line[key] = Amplifier(known.call, gain, share, known.times + 1)
    found = sorted(by_line.values(), key=lambda a: -max(a.gain, 1e3 * a.flipped))
    return found[:_MOST_AMPLIFIERS]
