"""The error of each kernel of compiled code: its FX nodes are evaluated in float64 on the inputs it had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelscope.events import Site
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.checks.launch_check import LaunchCheck
from kernelscope.shadowing.checks.pending import Pending, part_of
from kernelscope.shadowing.reference.launch_nodes import Output
from kernelscope.shadowing.reference.small_errors.rounding import eps_of
from kernelscope.shadowing.result import ShadowResult

from .errors import Error, error_in_ulps, error_of

Key = tuple[str, str, int]  # kernel, name of the file, line: the same at every launch, and in every run
_LARGE = 8.0  # roundings: then it is measured how many of them the kernel's own steps explain
_JITTERED_RUNS = 3


def key_of(site: Site) -> Key:
    return site.kernel.name, Path(site.file).name, site.line


@dataclass(slots=True)
class Measured:
    """All launches at one site."""

    error: Error = field(default_factory=Error)
    roundings: float = 0.0  # its relative error, in roundings of its dtype
    explained: float = 0.0  # relative error that one rounding after each step leads to, where it is large
    is_measured: bool = False
    reason: str = ""  # why not, in a few words
    is_wrong: bool = False  # more error than rounding explains

    @property
    def amplifies(self) -> bool:
        """The result as a whole has lost digits, as in a difference of numbers that are nearly the same."""
        return self.roundings > _LARGE


class MeasuredLaunches(LaunchCheck):
    """Judges launches as shadow does, and keeps the numbers of all of them."""

    needs_double = True

    def __init__(self, result: ShadowResult) -> None:
        super().__init__(result, offload=False)
        self.found: dict[Key, Measured] = {}

    def not_judged(self, launch: Launch, argument: str, reason: str) -> None:
        found = self._of(launch)
        found.reason = found.reason or f"{argument}: {reason}"

    def after(self, launch: Launch, pending: Pending) -> None:
        super().after(launch, pending)
        self._of(launch).is_wrong |= not pending.is_right

    def judging(self, launch: Launch, pending: Pending, output: Output, made: torch.Tensor) -> None:
        wide = self._wide(pending.in_double(), output, made)
        error = error_of(made, wide) if wide is not None else None
        if error is None or wide is None:
            return
        found = self._of(launch)
        found.error, found.is_measured = found.error.worse(error), True
        dtype = made.real.dtype if made.is_complex() else made.dtype
        found.roundings = max(found.roundings, roundings := error.relative / eps_of(dtype))
        if roundings > _LARGE:
            generator = torch.Generator().manual_seed(0)
            for _ in range(_JITTERED_RUNS):
                moved = pending.reference.jittered(pending.nodes.order, pending.inputs, generator)
                other = self._wide(moved, output, made)
                if other is not None and not made.is_complex():
                    most = error_in_ulps(other, wide, dtype).relative
                    found.explained = max(found.explained, most)

    def _wide(self, values: Mapping[Any, Any], output: Output, made: torch.Tensor) -> torch.Tensor | None:
        wide = part_of(values, output)
        if not isinstance(wide, torch.Tensor) or wide.numel() != made.numel():
            return None
        return wide.reshape(made.shape)

    def _of(self, launch: Launch) -> Measured:
        return self.found.setdefault(key_of(launch.site), Measured())
