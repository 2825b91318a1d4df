"""Values that are put together from shards: by layout, by statistics, by hash, and what rounding explains."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from kernelscope.analysis.sharding.declared import DTensors
from kernelscope.analysis.sharding.values.fits import Allowed, best, fit
from kernelscope.analysis.sharding.values.hashes import bits_of, hash_fit, slice_of
from kernelscope.analysis.sharding.values.layouts import Layout, Mesh, joined, possible_layouts
from kernelscope.analysis.sharding.values.summaries import stats_fit
from kernelscope.events import DTENSOR_ENDS, DTENSOR_OPERATOR, MESH, Mark
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.stats import Stats

TWO = Mesh((2,), (0, 1))
FOUR = Mesh((2, 2), (0, 1, 2, 3), ("dp", "tp"))
EXACT = Allowed(2.0**-23, 1.0, 0.0)
VALUE = np.random.default_rng(0).normal(size=(6, 5, 4))


def pieces_of(layout: Layout, mesh: Mesh = TWO, value: np.ndarray = VALUE) -> dict[int, np.ndarray]:
    return {rank: slice_of(value, mesh, layout, rank) for rank in mesh.ranks}


@pytest.mark.parametrize(
    ("mesh", "placements"),
    [
        (TWO, ("Shard(0)",)),
        (TWO, ("Shard(1)",)),  # 5 rows: 3 and 2
        (TWO, ("Shard(-1)",)),
        (TWO, ("StridedShard(0, 3)",)),
        (FOUR, ("Shard(0)", "Shard(1)")),
        (FOUR, ("Shard(0)", "Shard(0)")),
        (FOUR, ("Replicate", "Shard(2)")),
        (FOUR, ("Shard(2)", "Replicate")),
    ],
)
def test_slices_give_the_value_again(mesh: Mesh, placements: tuple[str, ...]) -> None:
    layout = Layout(placements)
    pieces = pieces_of(layout, mesh)
    found = joined(pieces, mesh, layout)
    assert found is not None
    assert np.array_equal(found.value, VALUE)
    hashes = {rank: bits_of(piece, "float64") for rank, piece in pieces.items()}
    assert hash_fit(hashes, None, VALUE, "float64", mesh, layout) is not None
    hashes[0] ^= 1
    assert hash_fit(hashes, None, VALUE, "float64", mesh, layout) is None


def test_chunks_are_those_of_torch() -> None:
    for size in (3, 4, 5, 7):
        value = np.arange(size * 2.0).reshape(size, 2)
        mesh = Mesh((4,), (0, 1, 2, 3))
        expected = list(torch.from_numpy(value).chunk(4))
        for rank in mesh.ranks:
            part = slice_of(value, mesh, Layout(("Shard(0)",)), rank)
            there = expected[rank].numpy() if rank < len(expected) else value[:0]
            assert np.array_equal(part, there)


def test_hashes_are_those_of_a_recording() -> None:
    for dtype in (torch.float32, torch.float64, torch.int16, torch.bool):
        tensor = torch.arange(7).to(dtype)
        assert bits_of(tensor.numpy(), str(dtype).removeprefix("torch.")) == fingerprint(tensor).bits


def test_terms_are_added_and_averaged() -> None:
    terms = {0: VALUE - 1, 1: np.ones_like(VALUE)}
    for placement, factor in (("Partial(sum)", 1.0), ("Partial(avg)", 2.0)):
        found = joined(terms, TWO, Layout((placement,)))
        assert found is not None
        assert np.allclose(found.value * factor, VALUE)
    assert joined(terms, TWO, Layout(("Partial(product)",))) is None


@pytest.mark.parametrize(
    "placement", ["Shard(0)", "Shard(2)", "StridedShard(0, 3)", "Replicate", "Partial(sum)"]
)
def test_the_layout_is_found_by_values(placement: str) -> None:
    if placement == "Partial(sum)":
        noise = np.random.default_rng(1).normal(size=VALUE.shape)
        pieces = {0: VALUE - noise, 1: noise}
    else:
        pieces = pieces_of(Layout((placement,)))
    shapes = {rank: piece.shape for rank, piece in pieces.items()}
    layouts = possible_layouts(shapes, VALUE.shape, TWO, "forward")
    found = best(fit(pieces, VALUE, TWO, layout, EXACT) for layout in layouts)
    assert found is not None
    assert found.is_good
    assert str(found.layout) == placement


def test_rounding_passes_and_an_element_that_is_wrong_does_not() -> None:
    layout = Layout(("Shard(0)",))
    close = {rank: piece * (1 + 2.0**-22) for rank, piece in pieces_of(layout).items()}
    assert fit(close, VALUE, TWO, layout, EXACT).is_good
    close[1][0, 0, 0] += 0.01
    assert not fit(close, VALUE, TWO, layout, EXACT).is_good
    unequal = {0: VALUE, 1: VALUE + 0.01}
    assert not fit(unequal, VALUE, TWO, Layout(("Replicate",)), EXACT).is_good
    close[1][0, 0, 0] = math.nan
    assert fit(close, VALUE, TWO, layout, EXACT).error == math.inf


def test_results_of_the_optimizer_are_no_sums() -> None:
    shapes = {0: (4,), 1: (4,)}
    assert {str(each) for each in possible_layouts(shapes, (4,), TWO, "optimizer")} == {"Replicate"}
    assert "Partial(sum)" in {str(each) for each in possible_layouts(shapes, (4,), TWO, "backward")}


def stats(value: np.ndarray) -> Stats:
    return Stats(
        value.size, float(value.min()), float(value.max()), float(value.mean()), float(value.std()),
        float(np.abs(value).sum()), 0, 0, 0, 0,
    )  # fmt: skip


def test_statistics_add_up() -> None:
    for placement in ("Shard(1)", "Replicate"):
        layout = Layout((placement,))
        pieces = {rank: stats(piece) for rank, piece in pieces_of(layout).items()}
        good = stats_fit(pieces, stats(VALUE), TWO, layout, EXACT)
        assert good is not None
        assert good.is_good
        bad = stats_fit(pieces, stats(VALUE + 0.01), TWO, layout, EXACT)
        assert bad is not None
        assert not bad.is_good
    terms = {0: stats(VALUE - 1), 1: stats(np.ones_like(VALUE))}
    found = stats_fit(terms, stats(VALUE), TWO, Layout(("Partial(sum)",)), EXACT)
    assert found is not None
    assert found.is_good
    assert stats_fit(terms, stats(VALUE), TWO, Layout(("Partial(max)",)), EXACT) is None


def test_marks_that_cannot_be_read_are_counted() -> None:
    mesh = {"name": "0", "shape": [2], "ranks": [0, 1], "dimensions": ["tp"]}
    spec = {"mesh": "0", "placements": ["Shard(0)"], "shape": [4], "storage": 3}
    good = [
        Mark(0, MESH, json.dumps(mesh)),
        Mark(0, DTENSOR_OPERATOR, json.dumps({"operator": "aten.mm.default", "arguments": [spec, None]})),
        Mark(2, DTENSOR_ENDS, json.dumps({"results": [spec]})),
    ]
    found = DTensors(good)
    assert not found.unreadable
    [operator] = found.operators
    assert (operator.first, operator.end, str(operator.results[0].layout)) == (0, 2, "Shard(0)")
    bad = [
        Mark(0, MESH, json.dumps(mesh | {"shape": [3]})),
        Mark(0, MESH, "[" * 10_000),
        Mark(0, DTENSOR_OPERATOR, json.dumps({"operator": "x", "arguments": [spec | {"mesh": "9"}]})),
        Mark(0, DTENSOR_OPERATOR, json.dumps({"operator": "x", "arguments": [spec | {"placements": []}]})),
        Mark(0, DTENSOR_OPERATOR, "null"),
    ]
    assert DTensors([*good, *bad]).unreadable == len(bad)
    assert len(DTensors([*good, *bad]).operators) == 1
