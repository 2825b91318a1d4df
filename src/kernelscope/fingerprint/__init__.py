"""Fingerprints: 64 bits that tell whether two tensors hold the same values, and statistics on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .definition import DTYPE_CODES, reference_bits
from .stats import Stats

if TYPE_CHECKING:
    import torch

    from .fingerprinter import Fingerprinter, HashFailure, Level, NotFingerprintable, Slot, why_not

__all__ = [
    "DTYPE_CODES",
    "Fingerprint",
    "Fingerprinter",
    "HashFailure",
    "NotFingerprintable",
    "Slot",
    "Stats",
    "fingerprint",
    "reference_bits",
    "why_not",
]


@dataclass(frozen=True)
class Fingerprint:
    """What one pass over a tensor gives; `stats` is None at level "hash", and for a dtype without numbers."""

    bits: int
    stats: Stats | None = None

    @property
    def norm(self) -> float | None:
        return None if self.stats is None else self.stats.norm

    def __str__(self) -> str:
        bits = f"bits={self.bits:#018x}"
        return bits if self.stats is None else f"{bits} norm={self.norm!r} {self.stats}"


def fingerprint(tensor: torch.Tensor, level: Level = "stats") -> Fingerprint:
    """The fingerprint of one tensor, now; waits for its device. Level "hash" leaves out the statistics."""
    from .fingerprinter import Fingerprinter

    taken = Fingerprinter(("bits",), level=level)
    [slot] = taken.take([tensor])
    bits = taken.read(slot)
    assert isinstance(bits, int)
    return Fingerprint(bits, taken.stats(slot) if level == "stats" else None)


def __getattr__(name: str) -> object:
    # The rest needs torch, and reading a recorded run must not load torch.
    if name in __all__:
        from . import fingerprinter

        return getattr(fingerprinter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
