"""Errors between saved tensors, against numpy's own nextafter and plain arithmetic."""

from __future__ import annotations

import math
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.analysis.tensor_errors import Errors, errors_between
from kernelscope.store.tensors import SavedTensor

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


def saved(values: list[float], kind: str = "F32", shape: tuple[int, ...] | None = None) -> SavedTensor:
    formats = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "BOOL": "?", "C64": "<c8"}
    data = np.array(values, formats[kind]).tobytes()
    return SavedTensor(kind, shape or (len(values),), data)


def between(
    a: list[float], b: list[float], kind: str = "F32", shape: tuple[int, ...] | None = None
) -> Errors:
    found = errors_between(saved(a, kind, shape), saved(b, kind, shape), "out_ptr0", "after")
    assert found is not None
    return found


def steps(a: float, b: float) -> int:
    """Units in the last place, by walking from one float to the other."""
    x, y = np.float32(a), np.float32(b)
    count = 0
    while x != y and count < 60:
        x = np.nextafter(x, y)
        count += 1
    return count


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=20))
def test_as_plain_arithmetic_says(pairs: list[tuple[float, float]]) -> None:
    found = between([a for a, _ in pairs], [b for _, b in pairs])
    apart = [0.0 if a == b or (a != a and b != b) else abs(a - b) for a, b in pairs]
    apart = [math.inf if d != d else d for d in apart]
    assert found.elements == len(pairs)
    assert found.differing == sum(d > 0 for d in apart)
    assert found.max_abs == max(apart)
    assert apart[found.where[0]] == max(apart)
    assert sum(count for _, count in found.histogram) == len(pairs)


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.integers(0, 50), st.booleans())
def test_ulps_are_steps_from_float_to_float(a: float, count: int, up: bool) -> None:
    b = np.float32(a)
    for _ in range(count):
        b = np.nextafter(b, np.float32(np.inf if up else -np.inf))
    expected = steps(a, float(b))
    # Walking passes 0 in one step, the line of all floats has -0 and 0 at the same place.
    assert found_ulp(a, float(b)) == expected


def found_ulp(a: float, b: float) -> int | None:
    return between([a], [b]).max_ulp


def test_other_dtypes() -> None:
    assert between([1, 5], [1, 8], "I64").max_abs == 3
    assert between([1, 5], [1, 8], "I64").max_ulp is None
    assert between([True, False], [True, True], "BOOL").differing == 1
    assert between([1 + 2j, 0j], [1 + 2j, 3j], "C64").max_abs == 3  # type: ignore[list-item]
    halves = [SavedTensor("BF16", (1,), struct.pack("<H", word)) for word in (0x3F80, 0x3F81)]
    found = errors_between(*halves, "x", "after")  # type: ignore[misc]
    assert found is not None
    assert (found.max_ulp, found.max_abs) == (1, 0.0078125)


def test_where_is_an_index_of_the_shape() -> None:
    found = between([0, 0, 0, 0, 0, 9], [0, 0, 0, 0, 0, 1], shape=(2, 3))
    assert found.where == (1, 2)
    assert (found.a, found.b) == (9, 1)


def test_what_cannot_be_compared() -> None:
    a = saved([1.0])
    assert errors_between(a, saved([1.0], "F64"), "x", "after") is None
    assert errors_between(a, saved([1.0, 2.0]), "x", "after") is None
    strange = SavedTensor("F8_E4M3", (1,), b"a")
    assert errors_between(strange, strange, "x", "after") is None
    empty = saved([])
    assert errors_between(empty, empty, "x", "after") is not None
