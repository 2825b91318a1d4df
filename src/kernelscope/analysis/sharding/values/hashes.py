"""Values of which only hashes were recorded: a shard is a slice of the reference's value, or it is not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelscope.fingerprint.definition import MASK64, POSITION, WORD_BYTES, mix, salt
from kernelscope.store.columns import mixed

from .fits import Fit
from .layouts import Layout, Mesh

_SHARD = re.compile(r"(?:Strided)?Shard\((-?\d+)(?:, (\d+))?\)")


def bits_of(array: Any, dtype: str) -> int:
    """The hash of a tensor, as it is recorded."""
    data = np.ascontiguousarray(array).tobytes()
    words = np.frombuffer(data + bytes(-len(data) % WORD_BYTES), "<u8")
    with np.errstate(over="ignore"):
        places = np.arange(1, len(words) + 1, dtype=np.uint64) * np.uint64(POSITION)
        total = int(mixed(words ^ places).sum(dtype=np.uint64))
    return mix((total & MASK64) ^ salt(dtype, len(data)))


def slice_of(whole: Any, mesh: Mesh, layout: Layout, rank: int) -> Any:
    """The part of a value that a rank holds in this layout; None for a sum."""
    coordinate = np.unravel_index(mesh.ranks.index(rank), mesh.shape)
    for at, size, placement in zip(coordinate, mesh.shape, layout.placements, strict=True):
        if placement == "Replicate":
            continue
        found = _SHARD.fullmatch(placement)
        if found is None or not -whole.ndim <= int(found[1]) < whole.ndim:
            return None
        dim, factor = int(found[1]) % whole.ndim, int(found[2] or 1)
        if whole.shape[dim] % factor:
            return None
        inner = whole.shape[dim] // factor
        split = whole.reshape(*whole.shape[:dim], factor, inner, *whole.shape[dim + 1 :])
        chunk = -(-inner // size)  # as torch.chunk does
        begin, end = min(int(at) * chunk, inner), min((int(at) + 1) * chunk, inner)
        part = split[(slice(None),) * (dim + 1) + (slice(begin, end),)]
        whole = part.reshape(*whole.shape[:dim], factor * (end - begin), *whole.shape[dim + 1 :])
    return whole


def hash_fit(
    pieces: Mapping[int, int], bits: int | None, whole: Any, dtype: str, mesh: Mesh, layout: Layout
) -> Fit | None:
    """None if hashes do not decide: values that are equal but for rounding have other hashes.

    `whole` is the reference's value if it was saved.
    """
    if layout.is_replicated and bits is not None:
        if all(each == bits for each in pieces.values()):
            return Fit(mesh, layout, 0.0, 0.0)
        return None
    if whole is None or layout.scale != 1 or layout.is_partial:
        return None
    for rank, found in pieces.items():
        part = slice_of(whole, mesh, layout, rank)
        if part is None or bits_of(part, dtype) != found:
            return None
    return Fit(mesh, layout, 0.0, 0.0)


def unequal_replicas(pieces: Mapping[int, int], mesh: Mesh, layout: Layout) -> Fit | None:
    """A value that is declared to be the same on all ranks, and is not."""
    if layout.is_replicated and len(set(pieces.values())) > 1:
        return Fit(mesh, layout, math.inf, 0.0)
    return None
