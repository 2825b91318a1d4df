"""What a collective gave must be the same wherever it should, and what was sent must arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kernelscope.model.call import KernelCall

from .collective_order import Meeting
from .deviation import COLLECTIVE, Deviation
from .rank import Rank

_SAME_EVERYWHERE = ("allreduce", "all_reduce", "broadcast", "allgather", "all_gather")


def result_deviations(ranks: Sequence[Rank], meetings: Sequence[Meeting]) -> Iterator[Deviation]:
    by_number = {rank.number: rank for rank in ranks}
    for meeting in meetings:
        if len(meeting.positions) > 1:
            calls = {number: by_number[number].at(at) for number, at in meeting.positions.items()}
            name = next(iter(calls.values())).kernel_name
            if any(word in name for word in _SAME_EVERYWHERE):
                yield from _unequal(by_number, meeting, calls)


def _unequal(ranks: dict[int, Rank], meeting: Meeting, calls: dict[int, KernelCall]) -> Iterator[Deviation]:
    gave = {number: _gave(call) for number, call in calls.items()}
    known = {number: values for number, values in gave.items() if values}
    votes = Counter(tuple(values.values()) for values in known.values())
    if len(votes) < 2:
        return
    most = max(votes.values())
    right = [value for value, count in votes.items() if count == most]
    wrong = [n for n, values in known.items() if len(right) > 1 or tuple(values.values()) != right[0]]
    good = next((n for n in known if n not in wrong), wrong[0])
    for number in wrong:
        other = good if good != number else wrong[-1]
        names = [
            calls[number].arg_names[i] for i, value in known[number].items() if known[other].get(i) != value
        ]
        if not names:
            continue
        yield ranks[number].deviation(
            COLLECTIVE, meeting.positions[number],
            f"collective {meeting.number} of group {meeting.group} must give all its ranks the same, and "
            f"gave rank {number} other values than rank {other} (call {calls[other].index})",
            argument=names[0], suspects=(number,) if len(right) == 1 else tuple(wrong),
            other_rank=other, other_index=calls[other].index,
        )  # fmt: skip


def _gave(call: KernelCall) -> dict[int, Any]:
    """What it wrote, by argument."""
    post = call.post_hashes
    return {i: post[i] for i in sorted(post) if call.arguments[i].role in ("out", "inout")}
