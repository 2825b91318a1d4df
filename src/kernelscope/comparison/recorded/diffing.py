"""diff(): two runs, by their hashes; or by what rounding explains of their saved values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, overload

from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.analysis.diff.search import AnyRun
from kernelscope.analysis.diff.search import diff as diff_by_hashes
from kernelscope.errors import RunError
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.text.amounts import counted

if TYPE_CHECKING:
    from kernelscope.comparison.flow.calls_and_values import Call
    from kernelscope.comparison.result import ComparisonResult

_RECORD = "kernelscope run --values save --ops all script.py"


@overload
def diff(a: AnyRun, b: AnyRun, *, calibrate: Literal[False] = False) -> Divergence: ...
@overload
def diff(a: AnyRun, b: AnyRun, *, calibrate: Literal[True]) -> ComparisonResult: ...


def diff(a: AnyRun, b: AnyRun, *, calibrate: bool = False) -> Divergence | ComparisonResult:
    """Where two runs first differ, why, and how it goes on; false when they agree.

    The runs may have other calls: another fusion, another torch, a call more or less. They need hashes
    (values="hash"); with values="save" the numbers are compared as well.

    With `calibrate`, rounding is distinguished from error as compare() does: the first run is the
    reference, and the result is false when rounding explains every difference. Both need values="save"
    and ops="all".

    Example:
        divergence = kernelscope.diff("train-1", "train-2")
        print(divergence)
    """
    return diff_calibrated(a, b) if calibrate else diff_by_hashes(a, b)


def diff_calibrated(a: AnyRun, b: AnyRun) -> ComparisonResult:
    """The first call of the second run whose difference is more than its inputs and rounding explain."""
    first, second = _with_values(a), _with_values(b)

    import numpy as np

    from kernelscope.analysis.alignment.calls_by_position import Reader
    from kernelscope.analysis.sharding.part import Part
    from kernelscope.comparison.matching import Matching
    from kernelscope.comparison.verdict.judging import judged

    from .forward_calls import with_forward
    from .recorded_program import recorded_program
    from .replayed_reference import ReplayedReference, compiled_calls

    reference, other = Part(first), Part(second)
    if compiled := compiled_calls(reference.all_calls):
        raise RunError(
            f"{first.path} is the reference and has compiled code, such as call {compiled[0].index}, "
            f"{compiled[0].kernel_name}; record it without the compiler: TORCH_COMPILE_DISABLE=1 {_RECORD}"
        )
    flags = [Reader(run, np.arange(len(run))) for run in (first, second)]
    found = recorded_program(other, flags[1])
    replayed = ReplayedReference(Matching(found.flow, found.kept), reference, flags[0])
    replayed.replay()
    result = judged(replayed, found.failures)
    if result.first is not None:
        result.first = with_forward(result.first, replayed.flow, found.flow)
    for device in sorted(replayed.missing_devices):
        result.notes.append(f"this machine does not have {device}: the reference was run again on the CPU")
    for draw in replayed.draws_not_found[:1]:
        _without_what_follows(result, draw)
    for call, why in replayed.not_run[:4]:
        result.notes.append(f"call {call.index}, {call.kernel_name}, of the reference was not judged: {why}")
    if more := len(replayed.not_run[4:]):
        result.notes.append(f"{counted(more, 'more call')} of the reference not judged")
    return result


def _without_what_follows(result: ComparisonResult, draw: Call) -> None:
    """Only what the reference did before these random numbers is judged: the rest has others."""
    its = f"call {draw.number}, {draw.name}, of the reference"
    missing = f"the second run does not have the random numbers of {its}"
    all_found = [result.first, *result.others] if result.first is not None else []
    before = [f for f in all_found if f is not None and f.reference and f.reference.index < draw.number]
    if before:
        result.notes.append(f"{missing}: what follows from them was not judged")
    else:
        result.failed = f"{missing}, so what follows from them was not judged"
    result.first, result.others = (before[0], before[1:]) if before else (None, [])


def _with_values(run: AnyRun) -> StoredRun:
    found = run if isinstance(run, StoredRun) else load(os.fspath(run)) if not isinstance(run, Run) else None
    if found is None:
        raise RunError(
            'calibrate needs runs on disk, with saved values: record(path, values="save", ops="all")'
        )
    if not len(found):
        raise RunError(f"{found.path} is empty: it has no calls to compare; record with: {_RECORD}")
    if not found.has_tensors() or found.info.settings.get("ops") != "all":
        lacks = "saved values" if not found.has_tensors() else "eager operators"
        raise RunError(f"{found.path} has no {lacks}, which calibrate needs; record both with: {_RECORD}")
    return found
