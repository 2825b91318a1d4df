"""Conditions on values, as written: `nan`, `max>1e4`, `changed`, `nan@cpp_*@out_ptr*`. Needs no torch."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from kernelscope.fingerprint.stats import Stats

_COUNTS: dict[str, Callable[[Stats], float]] = {
    "nan": lambda stats: stats.nan,
    "inf": lambda stats: stats.pos_inf,  # -inf is how a mask is written, so it is a condition of its own
    "-inf": lambda stats: stats.neg_inf,
    "zeros": lambda stats: stats.zeros,
}
_MEASURES: dict[str, Callable[[Stats], float | None]] = {
    "min": lambda stats: stats.min,
    "max": lambda stats: stats.max,
    "mean": lambda stats: stats.mean,
    "std": lambda stats: stats.std,
    "absmax": lambda stats: _absmax(stats),
    "l1": lambda stats: stats.l1,
}
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_BARE = ("nan", "inf", "-inf", "changed")
_COMPARISON = re.compile(r"([+-]?[a-z0-9]+?)\s*(>=|<=|==|!=|>|<)\s*(\S+)")

CHANGED = "changed"
NAN = "nan"


@dataclass(frozen=True, slots=True)
class Condition:
    """What is watched for, in which arguments of which kernels."""

    text: str
    measure: str
    order: str = ">"
    bound: float = 0.0
    kernel: str = "*"
    arg: str = "*"

    def holds(self, stats: Stats) -> bool:
        """Of one tensor; never for `changed`, which is about two moments."""
        if self.measure == CHANGED:
            return False
        read = _COUNTS.get(self.measure) or _MEASURES[self.measure]
        value = read(stats)
        return value is not None and _ORDERS[self.order](value, self.bound)

    def looks_at(self, arg: str, wrapper_name: str) -> bool:
        return fnmatchcase(arg, self.arg) or fnmatchcase(wrapper_name, self.arg)

    def found(self, stats: Stats) -> str:
        """What was found, in words."""
        if self.measure in _COUNTS:
            name = {"nan": "NaN", "inf": "+inf", "zeros": "zeros"}.get(self.measure, self.measure)
            many = f"{stats.numel} element{'s' * (stats.numel != 1)}"
            return f"{int(_COUNTS[self.measure](stats))} {name} of {many}"
        return f"{self.measure} {_MEASURES[self.measure](stats):.6g}"


def parse_watch(text: str) -> Condition:
    """`CONDITION`, `CONDITION@KERNEL` or `CONDITION@KERNEL@ARGUMENT`; the last two are globs."""
    words = [word.strip() for word in text.split("@")]
    if len(words) > 3 or not all(words):
        raise ValueError(
            f"cannot watch {text!r}: write CONDITION, CONDITION@KERNEL or CONDITION@KERNEL@ARGUMENT"
        )
    condition, kernel, arg = (*words, "*", "*")[:3]
    word = condition.lower().removeprefix("+")
    if word in _BARE:
        return Condition(text, word, kernel=kernel, arg=arg)
    found = _COMPARISON.fullmatch(word)
    if found is None:
        raise ValueError(f"cannot watch {text!r}: {_advice(word)}")
    measure, order, number = found.groups()
    measure = measure.removeprefix("+")
    if measure not in _COUNTS and measure not in _MEASURES:
        raise ValueError(f"cannot watch {text!r}: {_advice(measure)}")
    try:
        bound = float(number)
    except ValueError:
        raise ValueError(f"cannot watch {text!r}: {number!r} is not a number") from None
    if math.isnan(bound):
        raise ValueError(f"cannot watch {text!r}: a comparison with nan never holds; write nan alone")
    return Condition(text, measure, order, bound, kernel, arg)


def _advice(word: str) -> str:
    known = [*_BARE, *_MEASURES, "zeros"]
    near = get_close_matches(word, known, 1)
    hint = f"did you mean {near[0]}? Use" if near else "use"
    measures = ", ".join([*_MEASURES, *_COUNTS])
    return f"{hint} nan, inf, -inf, changed, or one of {measures} with a bound, as in max>1e4"


def _absmax(stats: Stats) -> float | None:
    if stats.min is None or stats.max is None:
        return None
    return max(abs(stats.min), abs(stats.max))
