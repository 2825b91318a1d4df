"""How the ranks hold one value, and that value put together from what each rank holds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

REPLICATE = "Replicate"
_SHARD = re.compile(r"Shard\((-?\d+)\)")
_STRIDED = re.compile(r"StridedShard\((-?\d+), (\d+)\)")
_PARTIAL = re.compile(r"Partial\((\w+)\)")
_NORM = re.compile(r"_NormP\((\d+(?:\.\d+)?)\)")  # as torch prints it: norms of parts
MASKED = re.compile(r"MaskP\(sum, (?:torch\.Size\()?\[([\d, ]+)\]\)?, (\d+)\)")  # see masked.py
_MOST_FACTORS = 64  # ways in which one dimension may have been split before a view joined it to another


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks in a grid; a placement for each of its dimensions says how they hold a value."""

    shape: tuple[int, ...]
    ranks: tuple[int, ...]  # in row-major order
    dimensions: tuple[str, ...] = ()

    def text(self) -> str:
        names = self.dimensions or ("",) * len(self.shape)
        each = (f"{name}={size}" if name else str(size) for name, size in zip(names, self.shape, strict=True))
        return " × ".join(each)


@dataclass(frozen=True, slots=True)
class Layout:
    """One placement for each dimension of a mesh: "Shard(0)", "Replicate", "Partial(sum)"."""

    placements: tuple[str, ...]
    scale: int = 1  # each rank holds so many times its part: gradients of a mean over a part of the batch

    @property
    def is_partial(self) -> bool:
        return any(_PARTIAL.fullmatch(each) or _NORM.fullmatch(each) for each in self.placements)

    @property
    def is_of_norms(self) -> bool:
        return any(_NORM.fullmatch(each) for each in self.placements)

    @property
    def is_known(self) -> bool:
        """Whether values can be put together; a class of placements of the program's own says nothing."""
        known = (_SHARD, _STRIDED, _PARTIAL, _NORM, MASKED)
        return all(each == REPLICATE or any(k.fullmatch(each) for k in known) for each in self.placements)

    @property
    def is_replicated(self) -> bool:
        return self.scale == 1 and all(each == REPLICATE for each in self.placements)

    def __str__(self) -> str:
        shown = [_shown(each) for each in self.placements]
        text = shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
        return text + (f" times {self.scale}" if self.scale != 1 else "")


def _shown(placement: str) -> str:
    if MASKED.fullmatch(placement):
        return "Partial(masked)"
    found = _NORM.fullmatch(placement)
    return f"Partial({float(found[1]):g}-norm)" if found else placement


@dataclass(frozen=True, slots=True)
class Joined:
    """A value that was put together."""

    value: Any  # float64
    spread: float  # how far ranks that should hold the same are apart, at most
    terms: float  # rms of what was added up, where something was; rounding is relative to that


def joined(pieces: Mapping[int, Any], mesh: Mesh, layout: Layout) -> Joined | None:
    """The value that the ranks hold together; None if their shapes do not fit this layout."""
    grid = [(pieces[rank], 0.0, 0.0) for rank in mesh.ranks]
    for size, placement in zip(reversed(mesh.shape), reversed(layout.placements), strict=True):
        groups = [grid[i : i + size] for i in range(0, len(grid), size)]
        made = [_combined(group, placement) for group in groups]
        if any(each is None for each in made):
            return None
        grid = [each for each in made if each is not None]
    [(value, spread, terms)] = grid
    return Joined(value / layout.scale if layout.scale != 1 else value, spread, terms)


_Piece = tuple[Any, float, float]


def _combined(group: Sequence[_Piece], placement: str) -> _Piece | None:
    values = [value for value, _, _ in group]
    spread, terms = max(each[1] for each in group), max(each[2] for each in group)
    if found := _SHARD.fullmatch(placement):
        value = _concatenated(values, int(found[1]), 1)
        return None if value is None else (value, spread, terms)
    if found := _STRIDED.fullmatch(placement):
        value = _concatenated(values, int(found[1]), int(found[2]))
        return None if value is None else (value, spread, terms)
    if len({value.shape for value in values}) != 1:
        return None
    if placement == REPLICATE:
        apart = max((farthest(values[0], other) for other in values[1:]), default=0.0)
        return values[0], max(spread, apart), terms
    if found := _PARTIAL.fullmatch(placement):
        reduce = {"sum": sum, "avg": lambda v: sum(v) / len(v), "max": _largest, "min": _smallest}.get(
            found[1]
        )
        if reduce is None:
            return None
        with np.errstate(all="ignore"):
            return reduce(values), spread, max([terms, *(rms(value) for value in values)])
    if (found := _NORM.fullmatch(placement)) and float(found[1]):
        power = float(found[1])
        with np.errstate(all="ignore"):
            return sum(np.abs(value) ** power for value in values) ** (1 / power), spread, terms
    return None  # a placement of the program's own


def _largest(values: Sequence[Any]) -> Any:
    return np.maximum.reduce(list(values))


def _smallest(values: Sequence[Any]) -> Any:
    return np.minimum.reduce(list(values))


def _concatenated(values: Sequence[Any], dim: int, factor: int) -> Any:
    """Along a dimension; with a factor, along the inner one of the two that it was made of."""
    first = values[0]
    if not -first.ndim <= dim < first.ndim:
        return None
    dim %= first.ndim
    others = {value.shape[:dim] + value.shape[dim + 1 :] for value in values if value.ndim == first.ndim}
    if len(others) != 1 or any(value.ndim != first.ndim or value.shape[dim] % factor for value in values):
        return None
    split = [
        value.reshape(*value.shape[:dim], factor, value.shape[dim] // factor, *value.shape[dim + 1 :])
        for value in values
    ]
    whole = np.concatenate(split, axis=dim + 1)
    return whole.reshape(*first.shape[:dim], -1, *first.shape[dim + 1 :]) if whole.size else whole.reshape(
        *first.shape[:dim], factor * whole.shape[dim + 1], *first.shape[dim + 1 :]
    )  # fmt: skip


def farthest(a: Any, b: Any) -> float:
    """How far elements are apart, at most; NaN is as far as can be, unless both are."""
    with np.errstate(all="ignore"):
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0))


def rms(value: Any) -> float:
    return float(np.sqrt(np.mean(np.square(value)))) if value.size else 0.0


def possible_layouts(
    shapes: Mapping[int, tuple[int, ...]], whole: tuple[int, ...], mesh: Mesh, phase: str,
    *, is_norm: bool = False,
) -> Iterator[Layout]:  # fmt: skip
    """Layouts in which ranks with tensors of these shapes may hold a value of this shape, likeliest first.

    A result of the optimizer is never a sum that is still to be made: gradients have been reduced by then.
    A norm may be that of each rank's part.
    """
    local = shapes[mesh.ranks[0]]
    if len(local) != len(whole):
        return
    sums: tuple[str, ...] = () if phase == "optimizer" else ("Partial(sum)", "Partial(avg)")
    sums += ("_NormP(2)",) if is_norm else ()
    options = [(REPLICATE, *_shards(local, whole, size), *sums) for size in mesh.shape]
    found = [each for each in itertools.product(*options) if _fits(each, shapes, whole, mesh)]
    found.sort(
        key=lambda each: (
            sum("Strided" in p for p in each) + 2 * sum("Partial" in p or "Norm" in p for p in each)
        )
    )
    yield from (Layout(each) for each in found)
    if phase == "backward":
        for each in found:
            parts = [size for p, size in zip(each, mesh.shape, strict=True) if "Shard" in p]
            for scale in dict.fromkeys((*parts, int(np.prod(parts)) if parts else 1)):
                if scale != 1:
                    yield Layout(each, scale)


def _shards(local: tuple[int, ...], whole: tuple[int, ...], size: int) -> Iterator[str]:
    for dim, (part, all_of_it) in enumerate(zip(local, whole, strict=True)):
        if part == all_of_it and all_of_it > 0:
            continue
        yield f"Shard({dim})"
        factors = [n for n in range(2, part + 1) if part % n == 0][:_MOST_FACTORS]
        yield from (f"StridedShard({dim}, {factor})" for factor in factors)


def _fits(
    placements: Sequence[str], shapes: Mapping[int, tuple[int, ...]], whole: tuple[int, ...], mesh: Mesh
) -> bool:
    """Whether the shapes come out right; values are not looked at."""
    empty = {rank: np.broadcast_to(np.float64(0), shape) for rank, shape in shapes.items()}
    grid = [empty[rank].shape for rank in mesh.ranks]
    for size, placement in zip(reversed(mesh.shape), reversed(placements), strict=True):
        groups = [grid[i : i + size] for i in range(0, len(grid), size)]
        dims = _SHARD.fullmatch(placement) or _STRIDED.fullmatch(placement)
        grid = []
        for group in groups:
            if dims is None:
                if len(set(group)) != 1:
                    return False
                grid.append(group[0])
                continue
            dim = int(dims[1]) % max(len(whole), 1)
            if len({shape[:dim] + shape[dim + 1 :] for shape in group}) != 1:
                return False
            grid.append((*group[0][:dim], sum(shape[dim] for shape in group), *group[0][dim + 1 :]))
    return grid[0] == whole
