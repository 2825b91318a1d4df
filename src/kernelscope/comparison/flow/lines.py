"""Values that one line of a program made, one after the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from .calls_and_values import LEAF, SERIES, Flow, Value

_ITEM = re.compile(r"\[\d+\]")


def of_one_line(flow: Flow, values: Iterable[Value]) -> list[list[Value]]:
    """Several that one line made, called from the same lines or from others; of a list, its items.

    From others, because a prompt is read at once in one place, and what follows token by token in another.
    """
    groups: dict[object, list[Value]] = defaultdict(list)
    for value in values:
        call = flow.calls[value.call]
        what = (call.operator, _ITEM.sub("", value.argument), value.dtype)
        for callers in range(max(len(call.origin), 1), 0, -1):
            groups[(*what, call.origin[:callers])].append(value)
    distinct = {tuple(value.number for value in group): group for group in groups.values()}
    return [group for group in distinct.values() if len(group) > 1]


def parts_alone(flow: Flow, number: int) -> set[int]:
    """Of a series, the values that it is made of, of which none is the whole: rows, or terms of a sum."""
    value = flow.values[number]
    if value.call == LEAF or flow.calls[value.call].kind != SERIES:
        return set()
    parts = [flow.values[source] for source in value.sources]
    is_sum = sum(part.numel for part in parts) > value.numel
    return {part.number for part in parts if is_sum or part.numel < value.numel}
