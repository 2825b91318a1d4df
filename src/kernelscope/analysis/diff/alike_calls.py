"""Calls that are alike, and may have been paired with one another's partners.

Threads of a pool run the same kernels, often on the same values. Where one result is wrong, its call has no
partner with the same values, and what is wrong may be paired with what is right.
"""

from __future__ import annotations

from kernelscope.analysis.alignment.alignment import Alignment
from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.alignment.identity import kernel_key
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import Ints

from .pairs import compare
from .trace import Writer, writer_of

_FARTHEST = 100  # calls that are followed from writer to writer
_MOST_COMPARED = 2000  # calls that are compared with one call


def writers_that_differ(
    alignment: Alignment, of_a: Reader, of_b: Reader, a: Writer | None, b: Writer | None
) -> tuple[int, int] | None:
    """Two calls that read the same and left other values: these writers, or what made their inputs differ."""
    for _ in range(_FARTHEST):
        if a is None or b is None or alignment.partner(a.position) == b.position:
            return None
        one, other = of_a.at(a.position), of_b.at(b.position)
        if not _are_alike(one, other):
            return None
        difference = compare(one, other)
        if not difference.inputs:
            return (a.position, b.position) if difference.outputs else None
        first = difference.inputs[0]
        if first.what != "values":
            return None
        a = writer_of(of_a, a.position, one, first.position)
        b = writer_of(of_b, b.position, other, first.position)
    return None


def that_read_the_same(alignment: Alignment, different: Ints, of_b: Reader, a: KernelCall) -> int | None:
    """The call of the second run that read what this one read, of those that differ from their partners."""
    if not alignment.threads:
        return None
    for pair in different[:_MOST_COMPARED].tolist():
        position = int(alignment.b[pair])
        other = of_b.at(position)
        if _are_alike(a, other) and not compare(a, other).inputs:
            return position
    return None


def _are_alike(a: KernelCall, b: KernelCall) -> bool:
    return kernel_key(a.site.kernel) == kernel_key(b.site.kernel) and a.arg_names == b.arg_names
