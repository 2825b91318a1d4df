"""A result that a program multiplies by a number afterwards: a sum that becomes a mean."""

from __future__ import annotations

from collections.abc import Container

from .calls_and_values import LEAF, Flow, Value

_MOST_STEPS = 3


def is_multiple(flow: Flow, value: Value, wanted: Container[int]) -> bool:
    """Whether it is one of these values, multiplied or divided by numbers."""
    for _ in range(_MOST_STEPS):
        call = flow.calls[value.call] if value.call != LEAF else None
        if call is None or call.operator not in ("mul", "div") or call.is_kernel:
            return False
        given = [n for n in call.reads if flow.values[n].numel == value.numel]
        if len(given) != 1:
            return False
        if given[0] in wanted:
            return True
        value = flow.values[given[0]]
    return False
