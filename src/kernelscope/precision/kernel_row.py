"""What was measured of one kernel: a row of the map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelscope.events import Frame

from .errors import Error
from .ranges import Range


@dataclass(slots=True)
class KernelPrecision:
    """One site of a kernel, over all of its launches."""

    index: int  # in the order of the first launches
    kernel_name: str
    kind: str
    phase: str
    dtypes: tuple[str, ...]  # of its floating-point outputs
    launches: int
    error: Error | None  # None: see `reason`
    explained: float | None  # relative error that one rounding of each step leads to, where it is large
    verdict: str  # fine, amplifies, overflows, wrong, not-measured
    reason: str
    range: Range
    origin: tuple[Frame, ...]
    wrapper: str  # file and line that launches it

    @property
    def label(self) -> str:
        return f"#{self.index} {self.kernel_name}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "kernel_name": self.kernel_name,
            "kind": self.kind,
            "phase": self.phase,
            "dtypes": list(self.dtypes),
            "launches": self.launches,
            "error": self.error.to_dict() if self.error is not None else None,
            "explained": self.explained,
            "verdict": self.verdict,
            "reason": self.reason,
            "range": self.range.to_dict(),
            "origin": [{"file": f.file, "line": f.line, "function": f.function} for f in self.origin],
            "wrapper": self.wrapper,
        }
