"""Histograms, heat maps and differences of saved tensors."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kernelscope.report.content.pictures import difference, picture
from kernelscope.store.tensors import SavedTensor

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=70)


def saved(array: np.ndarray) -> SavedTensor:  # type: ignore[type-arg]
    return SavedTensor(NAMES[str(array.dtype)], array.shape, array.tobytes())


def cells(heat: dict[str, object]) -> np.ndarray:  # type: ignore[type-arg]
    levels = np.frombuffer(base64.b64decode(str(heat["data"])), np.uint8)
    return levels.reshape(heat["rows"], heat["columns"])  # type: ignore[call-overload, no-any-return]


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(list(NAMES)).flatmap(lambda name: arrays.arrays(name, SHAPES)))
def test_any_tensor_has_a_picture(array: np.ndarray) -> None:  # type: ignore[type-arg]
    form = picture(saved(array))
    assert form is not None
    json.dumps(form, allow_nan=False)
    finite = array[np.isfinite(array)]
    assert form["stats"]["nan"] == np.isnan(array).sum()
    if array.size == 1:  # a number has no distribution
        assert form["histogram"] is None
        assert form["heat"] is None
        return
    assert sum(form["histogram"]["counts"]) == finite.size if finite.size else form["histogram"] is None
    if array.size:
        assert cells(form["heat"]).shape <= (48, 48)


def test_cells_are_means_and_what_is_not_finite_stands_out() -> None:
    array = np.zeros((96, 96))
    array[:2, :2] = 8.0
    array[95, 95] = np.nan
    form = picture(saved(array))
    assert form is not None
    levels = cells(form["heat"])
    assert form["heat"]["high"] == 8.0
    assert levels[0, 0] == 254
    assert levels[47, 47] == 255
    assert (levels == 0).sum() == 48 * 48 - 2


def test_bytes_that_mean_nothing_have_none() -> None:
    assert picture(SavedTensor("F8_E4M3", (4,), b"abcd")) is None


def test_the_worst_elements_first() -> None:
    a = np.arange(12.0).reshape(3, 4)
    b = a.copy()
    b[1, 2] += 0.5
    b[2, 3] = np.nan
    form = difference(saved(a), saved(b))
    assert form is not None
    assert [w["at"] for w in form["worst"]] == [[2, 3], [1, 2]]
    assert form["worst"][0]["apart"] == "inf"
    assert form["worst"][1]["apart"] == pytest.approx(0.5)
    apart = cells(form["apart"])
    assert apart[2, 3] == 255
    assert apart[1, 2] == 254
    assert (apart == 0).sum() == 10


def test_other_shapes_are_not_subtracted() -> None:
    assert difference(saved(np.zeros(3)), saved(np.zeros(4))) is None


def test_statistics_are_those_of_the_finite_elements() -> None:
    array = np.array([1.0, 2.0, 6.0, np.nan, np.inf, -np.inf, -np.inf, 0.0])
    form = picture(saved(array))
    assert form is not None
    finite = array[np.isfinite(array)]
    assert form["stats"] == {
        "numel": 8, "min": 0.0, "max": 6.0, "mean": pytest.approx(finite.mean()),
        "std": pytest.approx(finite.std()), "median": 1.5, "nan": 1, "pos_inf": 1, "neg_inf": 2, "zeros": 1,
    }  # fmt: skip


def test_two_tensors_have_one_scale_and_no_difference_is_lost() -> None:
    """One element among very many: its cell stands out, because a cell is the worst of its elements."""
    a = np.zeros((200, 200))
    a[0, 0] = 4.0
    b = a.copy()
    b[150, 31] = 1.0
    form = difference(saved(a), saved(b))
    assert form is not None
    assert [form[key]["low"] for key in ("a", "b")] == [0.0, 0.0]
    assert [form[key]["high"] for key in ("a", "b")] == [4.0, 4.0]
    apart = cells(form["apart"])
    assert (form["apart"]["low"], form["apart"]["high"]) == (0.0, 1.0)
    assert (apart == 254).sum() == 1
    everywhere = difference(saved(a), saved(a + 1))
    assert everywhere is not None
    assert (everywhere["apart"]["low"], cells(everywhere["apart"]).min()) == (0.0, 254)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_neighbouring_numbers_look_different(kind: str) -> None:
    a = np.array([0.0091498], kind)
    form = difference(saved(a), saved(np.nextafter(a, a * 2)))
    assert form is not None
    [worst] = form["worst"]
    assert worst["a"] != worst["b"]
    assert np.array(worst["a"], kind) == a[0]
