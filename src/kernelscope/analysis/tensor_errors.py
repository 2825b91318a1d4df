"""How far two tensors are apart: absolute, relative and in units in the last place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelscope.store.tensors import SavedTensor

_WORDS = {"F64": "<i8", "F32": "<i4", "F16": "<i2", "BF16": "<i2"}
_EDGES = (0, 1, 2, 4, 16, 256, 1 << 16)  # of the histogram, in units in the last place


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one argument: how many elements differ, by how much at most, and where."""

    argument: str
    moment: str
    elements: int
    differing: int
    max_abs: float
    max_rel: float
    max_ulp: int | None  # None: not a floating-point dtype
    where: tuple[int, ...]  # of the largest absolute error
    a: float | int | bool | None  # the values there
    b: float | int | bool | None
    histogram: tuple[tuple[str, int], ...]  # how many elements are so many ulps apart

    def to_json(self) -> dict[str, Any]:
        form = {name: getattr(self, name) for name in self.__slots__}
        return form | {"histogram": [{"ulp": label, "elements": n} for label, n in self.histogram]}


def largest(errors: tuple[Errors, ...]) -> dict[str, Any]:
    """The three numbers of the first argument, as JSON has them; null without errors."""
    numbers = errors[0].to_json() if errors else {}
    return {name: numbers.get(name) for name in ("max_abs", "max_rel", "max_ulp")}


def errors_between(a: SavedTensor, b: SavedTensor, argument: str, moment: str) -> Errors | None:
    """None when they cannot be compared: other dtypes or sizes, or a dtype without numbers."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return None
    x, y = _values(a), _values(b)
    if x is None or y is None:
        return None
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(x - y))
        apart = np.where(np.isnan(apart), np.inf, apart)  # NaN against a number
        larger = np.maximum(np.abs(x), np.abs(y))
        relative = np.where(same, 0.0, np.where(np.isfinite(larger) & (larger > 0), apart / larger, np.inf))
    ulps = _ulps(a, b)
    if ulps is not None:
        ulps = np.where(same, 0, ulps)
    at = int(np.argmax(apart)) if apart.size else 0
    where = tuple(int(n) for n in np.unravel_index(at, a.shape)) if apart.size else ()
    return Errors(
        argument, moment, int(apart.size), int((~same).sum()), float(apart.max(initial=0)),
        float(relative.max(initial=0)), None if ulps is None else int(ulps.max(initial=0)), where,
        _item(a, at), _item(b, at), () if ulps is None else _histogram(ulps),
    )  # fmt: skip


def _values(tensor: SavedTensor) -> Any:
    """As float64 or complex128, flat."""
    held = tensor.numpy()
    if held.dtype == np.uint8 and tensor.dtype != "U8":
        return None
    return held.ravel().astype(np.complex128 if held.dtype.kind == "c" else np.float64)


def _ulps(a: SavedTensor, b: SavedTensor) -> Any:
    """Steps between two floats, counted along the line of all of them."""
    if a.dtype not in _WORDS:
        return None
    lines = []
    for tensor in (a, b):
        words = np.frombuffer(tensor.data, _WORDS[tensor.dtype]).astype(np.int64)
        least = np.int64(np.iinfo(np.dtype(_WORDS[tensor.dtype])).min)
        with np.errstate(over="ignore"):
            lines.append(np.where(words < 0, least - words, words))
    with np.errstate(over="ignore"):
        apart = np.abs(lines[0].astype(np.float64) - lines[1].astype(np.float64))
        exact = np.abs(lines[0] - lines[1])
    return np.where(apart < 2**62, exact, np.iinfo(np.int64).max)


def _histogram(ulps: Any) -> tuple[tuple[str, int], ...]:
    found = []
    for low, high in zip(_EDGES, (*_EDGES[1:], None), strict=True):
        within = (ulps >= low) if high is None else (ulps >= low) & (ulps < high)
        label = f"{low}" if high == low + 1 else f"{low} or more" if high is None else f"{low} to {high - 1}"
        if count := int(within.sum()):
            found.append((label, count))
    return tuple(found)


def _item(tensor: SavedTensor, at: int) -> Any:
    values = _values(tensor)
    if values is None or not values.size:
        return None
    value = values[at].item()
    return str(value) if isinstance(value, complex) else value
