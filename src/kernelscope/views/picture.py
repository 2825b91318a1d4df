"""A small picture of numbers for a terminal: a histogram, and a heat map of what has two dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_SHADES = " ░▒▓█"
_BINS = 12
_MOST_COLUMNS, _MOST_ROWS = 64, 24
_BAR = 40


def picture(array: Any) -> list[str]:
    """Lines for a numpy array of numbers; of complex ones their absolute values."""
    import numpy

    if array.dtype.kind == "c":
        array = abs(array)
    numbers = array.astype("f8")
    finite = numbers[numpy.isfinite(numbers)]
    if not numbers.size:
        return ["(empty)"]
    lines = []
    if missing := numbers.size - finite.size:
        many, nan = numbers.size, int(numpy.isnan(numbers).sum())
        lines.append(f"{nan} NaN, {missing - nan} infinite, of {many} element{'s' * (many > 1)}")
    if finite.size:
        lines += _histogram(finite)
    if numbers.ndim == 2:
        lines += ["", *_heat_map(numbers)]
    return lines


def _histogram(finite: Any) -> Iterator[str]:
    import numpy

    low, high = float(finite.min()), float(finite.max())
    if low == high:
        yield f"{low:>12.5g}  {'█' * _BAR} {finite.size}"
        return
    # Divided first: the range of float64 numbers may itself be too large for one.
    scale = max(abs(low), abs(high))
    counts, edges = numpy.histogram(finite / scale, _BINS)
    for count, edge in zip(counts, edges[:-1] * scale, strict=True):
        yield f"{edge:>12.5g}  {'█' * round(_BAR * count / counts.max()):{_BAR}} {count}"


def _heat_map(numbers: Any) -> Iterator[str]:
    """Light for the smallest, dark for the largest; ! where something is not finite."""
    import numpy

    rows = numpy.array_split(numpy.arange(numbers.shape[0]), min(_MOST_ROWS, numbers.shape[0]))
    columns = numpy.array_split(numpy.arange(numbers.shape[1]), min(_MOST_COLUMNS, numbers.shape[1]))
    scale = float(numpy.abs(numbers[numpy.isfinite(numbers)]).max(initial=0.0)) or 1.0
    cells = numpy.array([[(numbers[numpy.ix_(r, c)] / scale).mean() for c in columns] for r in rows])
    known = cells[numpy.isfinite(cells)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    for row in cells:
        yield "".join(_shade(cell, low, high) for cell in row)


def _shade(cell: float, low: float, high: float) -> str:
    if not low <= cell <= high:
        return "!"
    return _SHADES[min(int((cell - low) / (high - low or 1) * len(_SHADES)), len(_SHADES) - 1)]
