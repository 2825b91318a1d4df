"""Values whose memory was written again."""

from __future__ import annotations

from .calls_and_values import Flow


def replaced_values(flow: Flow) -> set[int]:
    """Also those that were read once, to be copied, if the copy's memory was: it has taken their place.

    So a copy of weights in float32 is made of one in bfloat16.
    """
    found = {number for before in flow.replaced.values() for number in before}
    for value in reversed(flow.values):
        copy = _only_copy(flow, value.number)
        if copy is not None and copy in found:
            found.add(value.number)
    return found


def _only_copy(flow: Flow, number: int) -> int | None:
    readers = flow.values[number].readers
    if len(readers) != 1:
        return None
    call = flow.calls[readers[0]]
    return call.writes[0] if call.is_copy and call.reads == (number,) and len(call.writes) == 1 else None
