"""Each version of a tensor is fingerprinted once while one graph call lasts, where every write is recorded.

A view of another shape that reads the same elements in the same order is the same version. Between graphs
everything is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import torch

from .fingerprinter import NotFingerprintable, Slot, why_not

# Storage, epoch, offset, view, stream: a fingerprint taken on another stream may still be under way.
Version: TypeAlias = tuple[int, int, int, int, int]
Tensors: TypeAlias = dict[int, tuple[Version, torch.Tensor]]


class AnyFingerprinter(Protocol):
    """A `Fingerprinter`, or what takes its place while a CUDA graph is captured."""

    @property
    def sees_shapes(self) -> bool:
        """Whether a tensor of another shape may give something else: a function of the user's sees it."""

    def take(self, tensors: Sequence[torch.Tensor]) -> list[Slot]: ...
    def take_known(self, tensors: Sequence[torch.Tensor]) -> list[Slot]: ...


# A graph call, and how often something may have been written unrecorded: while both stay the same, a version
# is known.
Span: TypeAlias = tuple[int, int]


class _Known(threading.local):
    span: Span = (-1, 0)
    slots: dict[Version, Slot]


class Versions:
    """Fingerprints, remembered by version."""

    def __init__(self, fingerprinter: AnyFingerprinter) -> None:
        self.fingerprinter = fingerprinter
        self._known = _Known()

    def take(self, span: Span, tensors: Tensors, *, reread: bool = False) -> dict[int, Slot]:
        """A slot for each tensor, by the same keys; those whose memory is gone are left out."""
        known = self._slots(span)
        taken: dict[int, Slot] = {}
        missing: list[int] = []
        for i, (version, tensor) in tensors.items():
            slot = None if reread or known is None or _is_lazy(tensor) else known.get(version)
            if slot is None:
                missing.append(i)
            else:
                taken[i] = slot
        if missing:
            for i, slot in self._read(missing, tensors).items():
                taken[i] = slot
                if known is not None and not _is_lazy(tensors[i][1]):
                    known[tensors[i][0]] = slot
        return taken

    def _slots(self, span: Span) -> dict[Version, Slot] | None:
        if span[0] < 0:
            return None
        known = self._known
        if known.span != span:
            known.span, known.slots = span, {}
        return known.slots

    def _read(self, wanted: list[int], tensors: Tensors) -> dict[int, Slot]:
        try:
            return dict(
                zip(wanted, self.fingerprinter.take_known([tensors[i][1] for i in wanted]), strict=True)
            )
        except NotFingerprintable:  # memory that was there when the site was described has been freed
            there = [i for i in wanted if why_not(tensors[i][1]) is None]
            return dict(zip(there, self.fingerprinter.take([tensors[i][1] for i in there]), strict=True))


def _is_lazy(tensor: torch.Tensor) -> bool:
    """Whether its elements are not what its memory holds: a conjugate or negation that is not written out."""
    return tensor.is_conj() or tensor.is_neg()
