"""One value of the reference and of all ranks, as far as it was recorded: saved, as statistics, or hashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.model.call import KernelCall

from .part import Part
from .split_embeddings import is_masked, without_other_rows
from .values.fits import Allowed, Fit, fit, is_apart
from .values.hashes import hash_fit, slice_of, unequal_replicas
from .values.layouts import Joined, Layout, Mesh, joined
from .values.summaries import stats_fit

SAVED, STATISTICS, HASHES = "saved", "statistics", "hashes"


class Observed:
    """What was recorded of an argument or result of a call of the reference and of its counterparts."""

    def __init__(
        self, reference: Part, ranks: Sequence[Part], call: KernelCall, calls: Sequence[KernelCall],
        position: int, moment: str, allowed: Allowed,
    ) -> None:  # fmt: skip
        self._allowed = allowed
        self._reference, self._parts, self._call, self._calls = reference, ranks, call, calls
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
        if not layout.is_known:
            return None
        if is_masked(layout):
            return self._fit_of_rows(mesh, layout)
        if self.means == SAVED:
            return fit(self._pieces, self._whole, mesh, layout, self._allowed)
        if self.means == STATISTICS:
            return stats_fit(self._pieces, self._whole, mesh, layout, self._allowed)
        if is_declared and (unequal := unequal_replicas(self._pieces, mesh, layout)) is not None:
            return unequal
        return hash_fit(self._pieces, self._whole, self._saved, self._dtype, mesh, layout)

    def joined(self, mesh: Mesh, layout: Layout) -> Joined | None:
        """The value that the ranks hold together; None where elements were not saved."""
        return joined(self._pieces, mesh, layout) if self.means == SAVED and not is_masked(layout) else None

    def fit_of(self, expected: Any, mesh: Mesh, layout: Layout) -> Fit | None:
        """Beside another value than the reference's."""
        if self.means != SAVED or is_masked(layout):
            return None
        return fit(self._pieces, expected, mesh, layout, self._allowed)

    def ranks_apart(self, near: Fit) -> tuple[int, ...]:
        """The ranks whose part is not the reference's, in the layout that fits best."""
        if self.means != SAVED or is_masked(near.layout) or near.layout.is_partial:
            return ()
        return tuple(
            rank
            for rank, piece in self._pieces.items()
            if (part := slice_of(self._whole, near.mesh, near.layout, rank)) is None
            or is_apart(piece / near.layout.scale, part, self._whole, near.limit)
        )

    def _fit_of_rows(self, mesh: Mesh, layout: Layout) -> Fit | None:
        """What looking up rows gave, where each rank has some of them."""
        if self.means != SAVED:
            return None
        both = list(zip(self._parts, self._calls, strict=True))
        kept = without_other_rows(self._reference, self._call, both, self._pieces, mesh, layout)
        if kept is None:
            return None
        pieces, terms = kept
        found = fit(pieces, self._whole, mesh, terms, self._allowed)
        return Fit(mesh, layout, found.error, found.limit)
