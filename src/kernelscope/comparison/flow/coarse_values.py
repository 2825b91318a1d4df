"""How coarsely a value was rounded on its way from what both programs have."""

from __future__ import annotations

from collections.abc import Container

from .calls_and_values import LEAF, Flow, Value

_MOST_STEPS = 64


def coarsest_behind(flow: Flow, value: Value, known: Container[int]) -> float:
    """Of the values that lead to it and that the reference does not have: the coarsest rounding.

    So are gradients in half precision of a loss that is scaled: the reference has no value for them.
    """
    found, seen, todo = 0.0, set[int](), [value]
    while todo and len(seen) < _MOST_STEPS:
        call = todo.pop().call
        if call == LEAF or call in seen:
            continue
        seen.add(call)
        new = [flow.values[number] for number in flow.calls[call].reads if number not in known]
        found = max([found, *(each.eps for each in new if each.call != LEAF)])
        todo += new
    return found
