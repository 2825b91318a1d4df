"""What one program overwrites with a constant, unread, and the other program keeps or reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernelscope.comparison.flow.calls_and_values import LEAF, Flow
from kernelscope.comparison.flow.replaced_values import replaced_values

from .blame import Unmatched


def lost_to_constants(
    flow: Flow, unmatched: Unmatched, other: Flow, pairs: Mapping[int, int]
) -> Iterator[tuple[int, int, int]]:
    """Calls of one program that fill memory, what they leave, and the value that is lost.

    `pairs`: by number of a value of this program, its counterpart in the other one. Memory that is cleared
    for a new use, as gradients are, has been read before.
    """
    replaced_there = replaced_values(other)
    for call in flow.calls:
        for number in call.writes:
            if number not in unmatched.constants or not flow.values[number].eps:
                continue
            for lost in flow.replaced.get(number, ()):
                there = pairs.get(lost)
                if there is None or there in replaced_there or not _is_result(flow, lost):
                    continue
                if not _is_read(flow, lost, call.index) and _is_needed(other, there):
                    yield call.index, number, lost


def _is_result(flow: Flow, number: int) -> bool:
    """Computed, and not drawn: an initial value that is replaced is no loss."""
    made_by = flow.values[number].call
    return made_by != LEAF and not flow.calls[made_by].is_draw and bool(flow.values[number].eps)


def _is_read(flow: Flow, number: int, but: int) -> bool:
    return any(reader != but and flow.calls[reader].writes for reader in flow.values[number].readers)


def _is_needed(flow: Flow, number: int) -> bool:
    """Read, or what is left at the end; gradients that nothing reads are left by any backward pass."""
    value = flow.values[number]
    if any(flow.calls[reader].writes for reader in value.readers):
        return True
    return value.call != LEAF and flow.calls[value.call].phase != "backward"
