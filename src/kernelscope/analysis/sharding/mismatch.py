"""A value of the ranks that is not the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelscope.model.call import KernelCall

from .declared import Declared
from .values.fits import Fit


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A value of the ranks that is not the reference's."""

    reference: KernelCall
    calls: list[KernelCall]  # one for each rank
    position: int
    moment: str  # "before": an argument is laid out in another way than its DTensor says
    declared: Declared | None
    nearest: Fit | None
    noises: Mapping[int, float] = field(default_factory=dict)  # by argument: how far the ranks were off then
    does_not_follow: bool = False  # it is near the reference's, but not what the operator makes of its inputs
