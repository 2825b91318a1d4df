"""A program that differs from run to run by itself: by the clock, by an unseeded generator, by its data."""

from __future__ import annotations

import re

from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.analysis.diff.divergence_parts import (
    DIFFERENT_KERNEL,
    EXTRA_CALL,
    INPUTS_DIFFER,
    MISSING_CALL,
    UNINITIALISED,
)

_SEEDS = "seed every generator, and use neither the clock nor the order of files; then run it again"
_WRITES = "write to the new elements before they are read, e.g. with zero_(); then run it again"
_BY_SOURCE = {  # where an input that differs came from
    "generator": "it draws random numbers from a generator whose seed differs each time",
    "number": "it passes a number that differs each time",
    "form": "it passes a tensor whose shape, strides or dtype differ each time",
    UNINITIALISED: "it makes a tensor larger and does not write to the new elements",
    "graph-input": "it makes its input from something that differs each time",
    "outside": "it makes its input from something that differs each time",
}
_FRACTION = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))([eE][+-]?\d+)?")


def program_difference(found: Divergence, of_a: Reader, of_b: Reader) -> str:
    """What the program itself does differently, in a sentence; empty where a kernel may be the cause."""
    if found.verdict == INPUTS_DIFFER and found.source is not None:
        what = _BY_SOURCE.get(found.source.kind, "")
        return f"{what}, at call {found.index}" if what else ""
    if found.verdict in (EXTRA_CALL, MISSING_CALL) and not found.compared.differing:
        return f"the calls that it makes differ each time, from call {found.index} on"
    if found.verdict == DIFFERENT_KERNEL and found.index_a is not None and found.index_b is not None:
        a, b = of_a.at(found.index_a), of_b.at(found.index_b)
        if a.source and _without_fractions(a.source) == _without_fractions(b.source):
            return f"a constant in the compiled code of call {found.index} differs each time"
    return ""


def advice_for(found: Divergence) -> str:
    """What to do about a program that differs by itself."""
    is_memory = found.source is not None and found.source.kind == UNINITIALISED
    return _WRITES if is_memory else _SEEDS


def _without_fractions(source: str) -> str:
    """Whole numbers stay: those the compiler chooses too, such as the size of a block."""
    return _FRACTION.sub("0.", source)
