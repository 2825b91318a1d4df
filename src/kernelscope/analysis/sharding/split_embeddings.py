"""Rows that DTensor looks up on the rank that has them: an embedding, or a gather, that is split by its rows.

A rank subtracts the number of its first row from the indices, and sets those of other ranks' rows to 0.
What it finds there is masked before the ranks' results are added up (`_MaskPartial`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelscope.model.call import KernelCall

from .part import Part
from .values.hashes import slice_of
from .values.layouts import MASKED, REPLICATE, Layout, Mesh

_INDICES = ("indices", "index")


def is_masked(layout: Layout) -> bool:
    return any(MASKED.fullmatch(each) for each in layout.placements)


def without_other_rows(
    reference: Part, call: KernelCall, both: Sequence[tuple[Part, KernelCall]], pieces: Mapping[int, Any],
    mesh: Mesh, layout: Layout,
) -> tuple[dict[int, Any], Layout] | None:  # fmt: skip
    """Each rank's result with zeros for what it does not have, and their layout; None without the indices.

    A result whose rank looked in the wrong place becomes NaN.
    """
    at = next((i for i, arg in enumerate(call.arguments) if arg.name in _INDICES), None)
    whole = reference.value(call, at, "before") if at is not None else None
    if at is None or whole is None:
        return None
    plain = Layout(tuple(REPLICATE if MASKED.fullmatch(each) else each for each in layout.placements))
    kept: dict[int, Any] = {}
    for part, each in both:
        looked, sought = part.value(each, at, "before"), slice_of(whole, mesh, plain, part.rank)
        if looked is None or sought is None or looked.shape != sought.shape:
            return None
        first, count = _rows(mesh, layout, part.rank)
        has = (sought >= first) & (sought < first + count)
        found = pieces[part.rank]
        extra = (1,) * max(found.ndim - has.ndim, 0)
        wrong = has & (looked != sought - first)
        found = np.where(has.reshape(*has.shape, *extra), found, 0.0)
        kept[part.rank] = np.where(wrong.reshape(*has.shape, *extra), np.nan, found)
    sums = tuple("Partial(sum)" if MASKED.fullmatch(each) else each for each in layout.placements)
    return kept, Layout(sums)


def looking_elsewhere(
    reference: Part, call: KernelCall, both: Sequence[tuple[Part, KernelCall]], mesh: Mesh, layout: Layout
) -> tuple[int, ...]:
    """The ranks that have a row which is looked up, and look for it at another place."""
    none = {part.rank: np.zeros(()) for part, _ in both}
    kept = without_other_rows(reference, call, both, none, mesh, layout)
    return tuple(rank for rank, found in kept[0].items() if np.isnan(found).any()) if kept else ()


def _rows(mesh: Mesh, layout: Layout, rank: int) -> tuple[int, int]:
    """The first row that a rank has, and their number, as torch.chunk splits them."""
    coordinate = np.unravel_index(mesh.ranks.index(rank), mesh.shape)
    first, count = 0, -1
    for at, size, placement in zip(coordinate, mesh.shape, layout.placements, strict=True):
        if told := MASKED.fullmatch(placement):
            if count < 0:
                sizes = [int(each) for each in told[1].split(",") if each.strip()]
                count = sizes[int(told[2])]
            chunk = -(-count // size)
            begin = min(int(at) * chunk, count)
            first, count = first + begin, min(begin + chunk, count) - begin
    return first, count
