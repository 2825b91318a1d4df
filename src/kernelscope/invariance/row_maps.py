"""Where a tensor has its rows: found from its shapes at two batch sizes, and from its values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

_MOST_CANDIDATES = 64
_GROSS = 0.05  # relative, in the 2-norm: more than any rounding does


@dataclass(frozen=True, slots=True)
class RowMap:
    """Dimensions that hold rows: each is outer x rows x inner, with the rows in between."""

    dims: tuple[tuple[int, int, int], ...]  # dimension, outer, inner

    def take(self, tensor: torch.Tensor, size: int, rows: Sequence[int]) -> torch.Tensor:
        """The elements of these rows, where the tensor has `size` of them."""
        for dim, outer, inner in sorted(self.dims, reverse=True):
            index = torch.tensor(rows, dtype=torch.int64, device=tensor.device)
            shape = (*tensor.shape[:dim], outer, size, inner, *tensor.shape[dim + 1 :])
            tensor = tensor.reshape(shape).index_select(dim + 1, index)
            tensor = tensor.flatten(dim, dim + 2)
        return tensor

    def put(self, tensor: torch.Tensor, size: int, rows: Sequence[int], values: torch.Tensor) -> torch.Tensor:
        """A copy that has these values for these rows."""
        if not self.dims:
            return values.reshape(tensor.shape).clone()
        places = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
        made = tensor.reshape(-1).clone()
        made[self.take(places, size, rows).reshape(-1)] = values.reshape(-1).to(made.dtype)
        return made.reshape(tensor.shape)


NO_ROWS = RowMap(())


def candidates(whole: Sequence[int], size: int, part: Sequence[int], part_size: int) -> list[RowMap] | None:
    """Where the rows may be in a tensor of these shapes at these batch sizes.

    None: the shapes do not go with the sizes. Without dimensions: it has no rows.
    """
    if len(whole) != len(part):
        return None
    scaled = [d for d in range(len(whole)) if whole[d] != part[d]]
    if size == part_size:
        return None if scaled else _of_equal_sizes(whole, size)
    choices = []
    for d in scaled:
        if whole[d] * part_size != part[d] * size or whole[d] % size:
            return None
        choices.append([(d, outer, inner) for outer, inner in factors(whole[d] // size)])
    found = [RowMap(tuple(dims)) for dims in itertools.product(*choices)]
    return found[:_MOST_CANDIDATES]


def _of_equal_sizes(shape: Sequence[int], size: int) -> list[RowMap]:
    found = [NO_ROWS]
    for d, n in enumerate(shape):
        if n and n % size == 0:
            found += [RowMap(((d, outer, inner),)) for outer, inner in factors(n // size)]
    return found[:_MOST_CANDIDATES]


def factors(n: int) -> list[tuple[int, int]]:
    """Rows one after the other first: that is how batches are usually flattened."""
    return [(outer, n // outer) for outer in range(1, n + 1) if n % outer == 0] or [(1, 0)]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the values of the same rows are apart in two runs."""

    elements: int
    differing: int
    max_abs: float
    max_ulp: int | None
    relative: float  # in the 2-norm
    factor: float | None = None  # all elements differ by it

    @property
    def is_gross(self) -> bool:
        return not self.relative <= _GROSS


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    return bool(_equal(a, b).all()) if a.is_floating_point() or a.is_complex() else False


def difference(a: torch.Tensor, b: torch.Tensor) -> Difference:
    """Of two tensors of the same shape and dtype."""
    differs = ~_equal(a, b)
    count = int(differs.sum())
    if not count:
        return Difference(a.numel(), 0, 0.0, 0, 0.0)
    if not (a.is_floating_point() or a.is_complex()):
        x, y = a.to(torch.float64), b.to(torch.float64)
        return Difference(a.numel(), count, float((x - y).abs().max()), None, count / a.numel() * 2)
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide)[differs], b.to(wide)[differs]
    apart, scale = (x - y).abs(), float(a.to(wide).abs().nan_to_num(0, 0, 0).norm())
    finite = apart.isfinite()
    largest = float(apart.max()) if bool(finite.all()) else math.inf
    relative = float(apart.norm()) / scale if scale and bool(finite.all()) else math.inf
    return Difference(a.numel(), count, largest, _ulps(a, b), relative, _factor(x, y))


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | ((a != a) & (b != b))


def _factor(x: torch.Tensor, y: torch.Tensor) -> float | None:
    """The one number that turns all of x into y."""
    if x.is_complex() or x.numel() < 4 or not bool(((x != 0) & x.isfinite() & y.isfinite()).all()):
        return None
    ratios = y / x
    middle = float(ratios.median())
    return middle if bool(((ratios - middle).abs() <= 1e-3 * abs(middle)).all()) else None


_WORDS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def _ulps(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """The most units in the last place; None where a dtype has none, or a value is not finite."""
    word = _WORDS.get(a.dtype)
    if word is None or not bool((a.isfinite() & b.isfinite()).all()):
        return None

    def ordered(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(word).to(torch.int64)
        return torch.where(bits < 0, torch.iinfo(word).min - bits, bits)

    return int((ordered(a) - ordered(b)).abs().max())
