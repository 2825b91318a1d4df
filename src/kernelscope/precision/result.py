"""A precision map: what was measured of each kernel, and what was tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .kernel_row import KernelPrecision
from .result_text import kernel_lines, promise_lines
from .what_if import WhatIf


@dataclass(slots=True)
class PrecisionMap:
    """Of one function. True when a kernel overflows its dtype, or has more error than rounding explains."""

    function: str = ""
    tolerance: float = 0.0
    outputs: list[str] = field(default_factory=list)  # that had to stay within the tolerance
    noise: float = 0.0  # how far a second run of the unchanged program was from the first
    kernels: list[KernelPrecision] = field(default_factory=list)
    what_ifs: list[WhatIf] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of kernelscope itself
    notes: list[str] = field(default_factory=list)
    refused: str = ""  # why nothing was measured

    def __bool__(self) -> bool:
        return bool(self.suspicious)

    @property
    def suspicious(self) -> list[KernelPrecision]:
        return [kernel for kernel in self.kernels if kernel.verdict in ("overflows", "wrong")]

    @property
    def promises(self) -> list[WhatIf]:
        """What a run has verified: in which format at least one kernel may be."""
        return [each for each in self.what_ifs if each.is_kept and each.chosen]

    @property
    def problem(self) -> str:
        """Why the map is inconclusive."""
        if self.refused:
            return self.refused
        if self.failures:
            return f"kernelscope itself failed: {self.failures[0]}"
        if not self.kernels:
            return "no kernel was launched"
        if all(kernel.verdict == "not-measured" for kernel in self.kernels):
            return f"no kernel could be measured: {self.kernels[0].reason}"
        return next((each.reason for each in self.what_ifs if each.is_unfinished), "")

    @property
    def status(self) -> int:
        """An exit status: 0 a map without suspicious kernels, 1 with one, 2 inconclusive."""
        return 1 if self else 2 if self.problem else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "problem": self.problem,
            "function": self.function,
            "tolerance": self.tolerance,
            "outputs": self.outputs,
            "noise": self.noise if self.noise < float("inf") else None,
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "what_ifs": [each.to_dict() for each in self.what_ifs],
            "failures": self.failures,
            "notes": self.notes,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return "\n".join(self._lines(verbose=False))

    def details(self) -> str:
        """The same with underflow and overflow in each format, and the effect of each kernel."""
        return "\n".join(self._lines(verbose=True))

    def _lines(self, *, verbose: bool) -> Iterator[str]:
        if self.problem and not self:
            yield f"inconclusive: {self.problem}"
        yield from kernel_lines(self.kernels, self.function, verbose=verbose)
        yield from promise_lines(self.what_ifs, self.outputs, self.tolerance, verbose=verbose)
        yield from self.failures
        yield from self.notes

    def __repr__(self) -> str:
        kept = ", ".join(f"{len(each.chosen)} {each.format}" for each in self.promises)
        return f"<PrecisionMap: {len(self.kernels)} kernels; {self.problem or kept or 'no promise'}>"
