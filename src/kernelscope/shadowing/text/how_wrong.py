"""How wrong a result is, in words: what it has, what eager has, and how many elements are concerned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def how_wrong(numbers: Mapping[str, Any]) -> str:
    """From the numbers of a verdict; nothing, if they do not tell."""
    bias, made, eager = numbers.get("bias"), numbers.get("compiled"), numbers.get("eager")
    if isinstance(bias, float) and math.isfinite(bias):
        direction = "large" if bias > 0 else "small"
        return f"all elements together are {_percent(abs(bias))} too {direction}"
    if made is None or eager is None:
        return ""
    wrong, count = numbers.get("wrong"), numbers.get("elements")
    many = f", in {wrong} of {count} elements" if isinstance(wrong, int) and count and count > 1 else ""
    if not isinstance(made, float) or not isinstance(eager, float):
        return f"{made} where eager has {eager}{many}"
    first, second = _in_digits(made, eager)
    how_far = _how_far(made, eager)
    return f"{first} where eager has {second}" + (f" ({how_far})" if how_far else "") + many


def shown(value: Any) -> str:
    """One element."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.9g}"
    return str(value)


def _in_digits(made: float, eager: float) -> tuple[str, str]:
    """With as few digits as tell them apart."""
    if math.isnan(made) or math.isnan(eager):
        return _number(made, 4), _number(eager, 4)
    for digits in (4, 6, 9):
        if (pair := (_number(made, digits), _number(eager, digits)))[0] != pair[1]:
            return pair
    return repr(made), repr(eager)


def _number(value: float, digits: int) -> str:
    return "NaN" if math.isnan(value) else f"{value:.{digits}g}"


def _how_far(made: float, eager: float) -> str:
    if not (math.isfinite(made) and math.isfinite(eager)) or eager == 0 or made == eager:
        return ""
    if made == -eager:
        return "the sign is wrong"
    if abs(made) >= 10 * abs(eager):
        return f"{abs(made / eager):.3g} times as large"
    off = abs(made - eager) / abs(eager)
    return f"{_percent(off)} off" if off >= 5e-5 else f"wrong from digit {math.ceil(-math.log10(off))} on"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
