"""One value of the reference and of all ranks, as far as it was recorded: saved, as statistics, or hashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.model.call import KernelCall

from .fits import Allowed, Fit, fit
from .hashes import hash_fit, unequal_replicas
from .layouts import Layout, Mesh
from .part import Part
from .summaries import stats_fit

SAVED, STATISTICS, HASHES = "saved", "statistics", "hashes"


class Observed:
    """What was recorded of an argument or result of a call of the reference and of its counterparts."""

    def __init__(
        self, reference: Part, ranks: Sequence[Part], call: KernelCall, calls: Sequence[KernelCall],
        position: int, moment: str, allowed: Allowed,
    ) -> None:  # fmt: skip
        self._allowed = allowed
        both = list(zip(ranks, calls, strict=True))
        self.means = ""  # which of these it is compared by; nothing where there is none
        self._whole: Any = reference.value(call, position, moment)
        self._pieces: dict[int, Any] = {part.rank: part.value(each, position, moment) for part, each in both}
        if self._has_all():
            self.means = SAVED
            return
        self._whole = reference.stats(call, position, moment)
        self._pieces = {part.rank: part.stats(each, position, moment) for part, each in both}
        if self._has_all():
            self.means = STATISTICS
            return
        spec = call.arguments[position].tensor
        self._whole = reference.bits(call, position, moment)
        self._pieces = {part.rank: part.bits(each, position, moment) for part, each in both}
        if spec is not None and self._has_all():
            self.means = HASHES
            self._dtype = spec.dtype
            self._saved = reference.raw(call, position) if moment == "after" else None

    def _has_all(self) -> bool:
        return self._whole is not None and all(piece is not None for piece in self._pieces.values())

    def fit(self, mesh: Mesh, layout: Layout, *, is_declared: bool) -> Fit | None:
        """None where what was recorded does not decide."""
        if self.means == SAVED:
            return fit(self._pieces, self._whole, mesh, layout, self._allowed)
        if self.means == STATISTICS:
            return stats_fit(self._pieces, self._whole, mesh, layout, self._allowed)
        if is_declared and (unequal := unequal_replicas(self._pieces, mesh, layout)) is not None:
            return unequal
        return hash_fit(self._pieces, self._whole, self._saved, self._dtype, mesh, layout)
