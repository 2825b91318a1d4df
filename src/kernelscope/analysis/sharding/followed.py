"""Whether a result of the ranks follows from what they read, by the operator of the run of one process.

Numbers that are off by rounding may make results that differ much: the sign of a sum that cancels, or a
quotient of two tiny numbers, as an optimizer computes it. If the operator, run on what the ranks read, gives
what they hold, rounding before it explains the difference. If it does not, nothing before it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from kernelscope.model.call import KernelCall

from .declared import Declared
from .observed import Observed
from .part import Part, inputs
from .values.fits import Fit, best
from .values.layouts import Layout, Mesh

# What an operator of the reference leaves, by argument, of these tensors; None: it cannot be run.
Rerun = Callable[[Part, KernelCall, Mapping[int, Any]], dict[int, Any] | None]


class _Values(Protocol):
    """Of the search: what the ranks hold."""

    reference: Part

    def observed(
        self, call: KernelCall, calls: list[KernelCall], position: int, moment: str, noise: float
    ) -> Observed | None: ...

    def layouts_of(
        self, call: KernelCall, calls: list[KernelCall], position: int, declared: Declared | None
    ) -> Iterator[tuple[Mesh, Layout]]: ...

    def declaration(self, call: KernelCall, position: int, *, is_result: bool) -> Declared | None: ...

    def noise_of(self, call: KernelCall, position: int) -> float: ...


def from_what_was_read(
    values: _Values, rerun: Rerun, call: KernelCall, calls: list[KernelCall], position: int
) -> Fit | None:
    """The ranks' result beside what the operator makes of what they read; None if that cannot be told."""
    given: dict[int, Any] = {}
    for i in inputs(call):
        held = _held(values, call, calls, i)
        if held is None:
            return None
        given[i] = held
    result = rerun(values.reference, call, given)
    seen = values.observed(call, calls, position, "after", 0.0)
    if result is None or seen is None or position not in result:
        return None
    declared = values.declaration(calls[0], position, is_result=True)
    layouts = values.layouts_of(call, calls, position, declared)
    found = (seen.fit_of(result[position], mesh, layout) for mesh, layout in layouts)
    return best(each for each in found if each is not None)


def _held(values: _Values, call: KernelCall, calls: list[KernelCall], position: int) -> Any:
    """What the ranks read, put together as it is nearest to the reference's; None if it is not near."""
    if position >= len(calls[0].arguments):
        return None
    seen = values.observed(call, calls, position, "before", values.noise_of(call, position))
    if seen is None:
        return None
    declared = values.declaration(calls[0], position, is_result=False)
    nearest: Fit | None = None
    for mesh, layout in values.layouts_of(call, calls, position, declared):
        found = seen.fit(mesh, layout, is_declared=declared is not None)
        if found is not None and found.is_good and (nearest is None or found.error < nearest.error):
            nearest = found
    whole = seen.joined(nearest.mesh, nearest.layout) if nearest is not None else None
    return (
        whole.value if whole is not None and not whole.spread else None
    )  # one of several is not what all read
