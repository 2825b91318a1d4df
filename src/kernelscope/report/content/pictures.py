"""Saved tensors as small pictures: a histogram, a heat map, and of two of them where they differ most."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from kernelscope.store.tensors import SavedTensor

Form = dict[str, Any]
_BINS = 32
_CELLS = 48  # rows and columns of a heat map, at most
_WILD = 255  # a cell with something that is not finite
_MOST = 12  # elements that are listed


def picture(tensor: SavedTensor) -> Form | None:
    """None of a dtype whose bytes mean no number to us."""
    numbers = values(tensor)
    if numbers is None:
        return None
    finite = numbers[np.isfinite(numbers)]
    is_drawn = numbers.size > 1  # a single number is read, not looked at
    return {
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "stats": _stats(numbers, finite),
        "histogram": histogram(finite) if is_drawn else None,
        "heat": heat(folded(numbers, tensor.shape)) if is_drawn else None,
        "first": [shown(v) for v in numbers[:_MOST].tolist()],
    }


def _stats(numbers: Any, finite: Any) -> Form:
    """As the statistics of level "stats" are named, and the median, which needs all elements."""
    with np.errstate(all="ignore"):
        told = (
            (finite.min(), finite.max(), finite.mean(), finite.std(), np.median(finite))
            if finite.size
            else (None,) * 5
        )
    low, high, mean, std, median = (None if n is None else shown(float(n)) for n in told)
    return {
        "numel": int(numbers.size), "min": low, "max": high, "mean": mean, "std": std, "median": median,
        "nan": int(np.isnan(numbers).sum()), "pos_inf": int(np.isposinf(numbers).sum()),
        "neg_inf": int(np.isneginf(numbers).sum()), "zeros": int((numbers == 0).sum()),
    }  # fmt: skip


def values(tensor: SavedTensor) -> Any:
    """Flat, as float64; of complex numbers their absolute values."""
    held = tensor.numpy()
    if held.dtype == np.uint8 and tensor.dtype not in ("U8", "BOOL"):
        return None
    return (np.abs(held) if held.dtype.kind == "c" else held).astype(np.float64).ravel()


def histogram(finite: Any) -> Form | None:
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    # Divided first: the range of float64 numbers may itself be too large for one.
    scale = max(abs(low), abs(high)) or 1.0
    counts, _ = np.histogram(finite / scale, _BINS, (low / scale, high / scale) if low < high else None)
    return {"low": shown(low), "high": shown(high), "counts": counts.tolist()}


def folded(numbers: Any, shape: tuple[int, ...]) -> Any:
    """As rows and columns: the last dimension lies across."""
    width = shape[-1] if len(shape) > 1 else numbers.size
    return numbers.reshape(-1, width) if numbers.size else numbers.reshape(0, 0)


def heat(
    numbers: Any, reduce: Any = np.mean, low: float | None = None, high: float | None = None
) -> Form | None:
    """Cells from 0 to 254 between the lowest and the highest; 255 where something is not finite."""
    if not numbers.size:
        return None
    cells = _cells(numbers, reduce)
    known = cells[np.isfinite(cells)]
    low = low if low is not None else float(known.min()) if known.size else 0.0
    high = high if high is not None else float(known.max()) if known.size else 0.0
    with np.errstate(all="ignore"):
        scaled = (cells / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
        levels = np.where(np.isfinite(cells), np.clip(np.round(scaled * 254), 0, 254), _WILD)
    return {
        "rows": cells.shape[0], "columns": cells.shape[1], "low": shown(low), "high": shown(high),
        "data": base64.b64encode(levels.astype(np.uint8).tobytes()).decode(),
    }  # fmt: skip


def _cells(numbers: Any, reduce: Any) -> Any:
    with np.errstate(all="ignore"):
        for axis in (0, 1):
            size = numbers.shape[axis]
            if size > _CELLS:
                starts = np.linspace(0, size, _CELLS, endpoint=False).astype(int)
                if reduce is np.mean:
                    counts = np.diff(np.r_[starts, size])
                    shape = (-1, 1) if axis == 0 else (1, -1)
                    numbers = np.add.reduceat(numbers, starts, axis) / counts.reshape(shape)
                else:
                    numbers = np.maximum.reduceat(numbers, starts, axis)
    return numbers


def difference(a: SavedTensor, b: SavedTensor) -> Form | None:
    """Two tensors side by side: heat maps on one scale, one of their difference, the worst elements."""
    x, y = values(a), values(b)
    if x is None or y is None or a.shape != b.shape or not x.size:
        return None
    with np.errstate(all="ignore"):
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart = np.where(same, 0.0, np.abs(x - y))
        apart = np.where(np.isnan(apart), np.inf, apart)
    worst = np.argsort(-apart, kind="stable")[:_MOST]
    digits = 17 if "F64" in (a.dtype, b.dtype) else 9  # as many as tell any two of them apart
    finite = np.concatenate([x[np.isfinite(x)], y[np.isfinite(y)]])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    is_drawn = x.size > 1
    return {
        "a": heat(folded(x, a.shape), low=low, high=high) if is_drawn else None,
        "b": heat(folded(y, b.shape), low=low, high=high) if is_drawn else None,
        "apart": heat(folded(apart, a.shape), np.maximum, low=0.0) if is_drawn else None,
        "worst": [
            {
                "at": [int(n) for n in np.unravel_index(int(i), a.shape)],
                "a": shown(x[i].item(), digits), "b": shown(y[i].item(), digits),
                "apart": shown(apart[i].item()),
            }
            for i in worst.tolist()
            if apart[i]
        ],
    }  # fmt: skip


def shown(value: float, digits: int = 7) -> float | str:
    """JSON has no word for what is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else repr(value)
