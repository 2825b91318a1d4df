"""Which arguments have rows, where a tensor has them, and how far the same rows are apart."""

from __future__ import annotations

import pytest
import torch

from kernelscope.invariance.batches import PADDING, Batch, NoRows, Selection
from kernelscope.invariance.row_maps import NO_ROWS, RowMap, candidates, difference, same


def test_arguments_with_as_many_rows_as_the_first_have_rows() -> None:
    x, mask, table = torch.randn(9, 4), torch.ones(9), torch.randn(4, 4)
    batch = Batch((x, table), {"mask": mask, "k": 3}, 0)
    args, kwargs, batched = batch.arguments(Selection("", (8, PADDING), "size"))
    assert torch.equal(args[0], torch.stack([x[8], torch.zeros(4)]))
    assert torch.equal(args[1], table)
    assert kwargs["k"] == 3
    assert kwargs["mask"].tolist() == [1, 0]
    assert len(batched) == 2


def test_a_dimension_for_each_argument() -> None:
    square = torch.randn(9, 9)
    batch = Batch((square, square), {}, (1, None))
    args, _, _ = batch.arguments(Selection("", (2,), "size"))
    assert torch.equal(args[0], square[:, 2:3])
    assert torch.equal(args[1], square)


def test_parameters_have_no_rows() -> None:
    batch = Batch((torch.randn(8, 8), torch.nn.Parameter(torch.randn(8, 8))), {}, 0)
    args, _, _ = batch.arguments(Selection("", (0,), "size"))
    assert args[1].shape == (8, 8)


@pytest.mark.parametrize(
    ("args", "dim", "words"),
    [((3,), 0, "no argument"), ((torch.ones(1, 2),), 0, "one row"), ((torch.ones(4),), (0, 0), "entries")],
)
def test_arguments_without_rows_are_refused(args: tuple, dim: int, words: str) -> None:
    with pytest.raises(NoRows, match=words):
        Batch(args, {}, dim)


@pytest.mark.parametrize("size", [2, 3, 8, 20])
def test_every_size_other_places_and_padding_are_among_the_runs(size: int) -> None:
    runs = Batch((torch.zeros(size, 1),), {}, 0).selections()
    assert {run.size for run in runs} >= {1, 7, 8, size}
    assert {run.tests for run in runs} == {"size", "position", "contents"}
    assert all(set(run.kept) <= set(range(size)) for run in runs)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        (lambda n: torch.arange(n * 6).reshape(n, 6), ((0, 1, 1),)),
        (lambda n: torch.arange(n * 6).reshape(n, 2, 3).flatten(0, 1), ((0, 1, 2),)),
        (lambda n: torch.arange(n * 6).reshape(n, 2, 3).transpose(0, 1).flatten(0, 1), ((0, 2, 1),)),
        (lambda n: torch.arange(n * 6).reshape(n, 6).t(), ((1, 1, 1),)),
    ],
)
def test_where_the_rows_are_follows_from_two_sizes(shape, rows) -> None:
    whole, part = shape(9), shape(3)
    found = candidates(whole.shape, 9, part.shape, 3)
    assert found is not None
    fitting = [m for m in found if same(m.take(whole, 9, [0, 1, 2]), m.take(part, 3, [0, 1, 2]))]
    assert RowMap(rows) in fitting


def test_shapes_that_do_not_follow_the_number_of_rows() -> None:
    assert candidates((9, 4), 9, (5, 4), 3) is None
    assert candidates((9, 4), 9, (3, 4, 1), 3) is None
    assert candidates((4, 4), 9, (4, 4), 3) == [NO_ROWS]


def test_rows_are_put_where_they_are_taken() -> None:
    rows = RowMap(((0, 2, 3),))
    whole, other = torch.randn(30), torch.zeros(12)
    put = rows.put(other, 2, [1], rows.take(whole, 5, [4]))
    assert same(rows.take(put, 2, [1]), rows.take(whole, 5, [4]))
    assert not rows.take(put, 2, [0]).any()


def test_a_difference_in_units_and_as_a_factor() -> None:
    a = torch.tensor([1.0, -2.0, float("nan")])
    b = torch.tensor([1.0, -2.0, float("nan")])
    assert not difference(a, b).differing
    b[0] += 2**-22
    found = difference(a[:2], b[:2])
    assert (found.differing, found.max_ulp, found.is_gross) == (1, 2, False)
    some = torch.arange(1.0, 5.0)
    assert difference(some, some * 3).factor == pytest.approx(3)
    assert difference(some, some.flip(0) * 3).factor is None
    assert difference(a[:2], a[:2] * float("nan")).is_gross
