"""Fingerprints: 64 bits that tell whether two tensors hold the same values, and a norm that tells how far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelscope.fingerprint.definition import DTYPE_CODES, reference_bits

if TYPE_CHECKING:
    import torch

    from kernelscope.fingerprint.fingerprinter import (
        Fingerprinter,
        HashFailure,
        NotFingerprintable,
        Slot,
        why_not,
    )

__all__ = [
    "DTYPE_CODES",
    "Fingerprint",
    "Fingerprinter",
    "HashFailure",
    "NotFingerprintable",
    "Slot",
    "fingerprint",
    "reference_bits",
    "why_not",
]


@dataclass(frozen=True)
class Fingerprint:
    """What one look at a tensor tells; `norm` is None for a dtype that has no numbers."""

    bits: int
    norm: float | None

    def __str__(self) -> str:
        norm = "none" if self.norm is None else repr(self.norm)
        return f"bits={self.bits:#018x} norm={norm}"


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """The fingerprint of one tensor, now; waits for its device."""
    from kernelscope.fingerprint.fingerprinter import Fingerprinter

    taken = Fingerprinter(("bits", "norm"))
    [slot] = taken.take([tensor])
    values = taken.read(slot)
    assert isinstance(values, tuple)
    bits, norm = values
    return Fingerprint(bits, norm if isinstance(norm, float) else None)


def __getattr__(name: str) -> object:
    # The rest needs torch, and reading a recorded run must not load torch.
    if name in __all__:
        from kernelscope.fingerprint import fingerprinter

        return getattr(fingerprinter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
