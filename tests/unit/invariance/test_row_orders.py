"""In which order one run has the rows of the whole batch: from indices, and from the rows themselves."""

from __future__ import annotations

import pytest
import torch

from kernelscope.invariance.batches import PADDING, Selection
from kernelscope.invariance.comparing import Comparing
from kernelscope.invariance.flow import Made, Value
from kernelscope.invariance.matched_nodes import matched_tokens
from kernelscope.invariance.row_orders import Order, by_contents, by_indices, by_nearness

ROWS = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
THREE = Order(9, 3, (8, 0, 4), (0, 1, 2))  # rows 8, 0 and 4 of nine


def made(tensor: torch.Tensor) -> Made:
    return Made("key", True, tensor, tensor, 0, "out")


def test_indices_of_the_same_rows_make_an_order() -> None:
    whole = torch.tensor([3, 0, 8, 1, 2, 4, 5, 6, 7])
    order = by_indices(whole, torch.tensor([1, 0, 2]), THREE)  # rows 0, 8 and 4
    assert order == Order(9, 3, (1, 2, 5), (0, 1, 2))


def test_a_selection_that_leaves_out_a_row_which_the_whole_batch_has_is_not_an_order() -> None:
    whole = torch.tensor([0, 8])
    assert by_indices(whole, torch.tensor([0, 1]), THREE) == Order(2, 2, (1, 0), (0, 1))
    assert by_indices(whole, torch.tensor([1]), THREE) is None
    assert by_indices(whole, torch.tensor([0, 1, 2]), THREE) is None
    assert by_indices(torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64), THREE) == Order(2, 0, (), ())


def test_indices_of_several_places_of_each_row() -> None:
    two = THREE.expanded(1, 2)
    assert (two.whole, two.part, two.kept) == (18, 6, (16, 17, 0, 1, 8, 9))
    order = by_indices(torch.arange(18).flip(0), torch.arange(6).flip(0), two)
    assert order is not None
    assert sorted(zip(order.places, order.kept, strict=True))[0] == (0, 8)  # 5 is 9, which is at 8


def test_a_row_that_is_there_twice_leaves_the_order_open() -> None:
    order = by_indices(torch.tensor([0, 0, 4]), torch.tensor([1, 1, 2]), THREE)
    assert order is not None
    assert order.is_ambiguous


def test_rows_are_found_by_their_bits() -> None:
    assert by_contents(ROWS, ROWS[[4, 2]], 0, 0, 2) == Order(9, 2, (4, 2), (0, 1))
    assert by_contents(ROWS, ROWS[[4, 2]] * (1 + 1e-6), 0, 0, 2) is None
    padded = torch.cat([ROWS[[4]], torch.zeros(1, 5)])
    assert by_contents(ROWS, padded, 0, 0, 1) is None
    assert by_contents(ROWS, padded, 0, 1, 1) == Order(9, 2, (4,), (0,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64, torch.float8_e4m3fn])
def test_of_any_dtype(dtype: torch.dtype) -> None:
    rows = ROWS.to(dtype)
    found = by_contents(rows, rows.view(torch.uint8)[[7, 1]].view(dtype), 0, 0, 2)
    assert found == Order(9, 2, (7, 1), (0, 1))


def test_nan_and_zeros_of_either_sign_are_equal_and_equal_rows_leave_the_order_open() -> None:
    whole = torch.tensor([[0.0, 1.0], [float("nan"), 2.0], [0.0, 1.0]])
    found = by_contents(whole, torch.tensor([[float("nan"), 2.0], [-0.0, 1.0]]), 0, 0, 2)
    assert found is not None
    assert found.kept == (1, 0)
    assert found.is_ambiguous


def test_rows_of_one_number_say_nothing() -> None:
    mask = torch.tensor([1.0, 0, 1, 1, 0, 1, 0, 0, 1])[:, None].expand(9, 4)
    assert by_contents(mask, mask[:3], 0, 0, 3) is None


def test_the_nearest_row_counts_if_it_is_clearly_the_nearest() -> None:
    assert by_nearness(ROWS, ROWS[[4, 2]] * (1 + 1e-6), 0, 0) == Order(9, 2, (4, 2), (0, 1))
    assert by_nearness(ROWS, ROWS[[4, 2]] * 1.1, 0, 0) is None
    assert by_nearness(ROWS, ROWS[[4, 4]] * (1 + 1e-6), 0, 0) is None
    near = torch.cat([ROWS, ROWS * (1 + 6e-3)])
    assert by_nearness(near, ROWS[[4]] * (1 + 3e-3), 0, 0) is None
    few = torch.cat([ROWS[[4]] * (1 + 1e-6), torch.zeros(4, ROWS.shape[1])])
    assert by_nearness(ROWS, few, 0, 4) == Order(9, 5, (4,), (0,))
    assert by_nearness(ROWS, few, 0, 5) is None  # all may be padding: one row of five does not tell
    assert by_nearness(ROWS[:, :1], ROWS[[4], :1] * (1 + 1e-6), 0, 0) is None


def test_a_row_that_is_there_several_times() -> None:
    twice = torch.cat([ROWS, ROWS * (1 + 1e-6)])  # as of a token that goes to two experts
    order = by_nearness(twice, ROWS[[4, 2, 4]] * (1 + 5e-7), 0, 0)
    assert order is not None
    assert order.is_ambiguous
    assert [kept % 9 for kept in order.kept] == [4, 2, 4]
    assert len(set(order.kept)) == 3
    assert by_nearness(twice, ROWS[[4, 4, 4]] * (1 + 5e-7), 0, 0) is None


def test_rows_that_were_moved_are_compared_in_their_order() -> None:
    comparing = Comparing(9, Selection("", (8, 0, 4), "size"))
    order, other = ROWS[:, 0].argsort(), ROWS[[8, 0, 4], 0].argsort()
    assert comparing.indices(Value(order, 0), made(other)) is not None
    moved = Value(ROWS[order].sum(1), 0)
    part = made(ROWS[[8, 0, 4]][other].sum(1) * (1 + 1e-6))
    match = comparing.compare(moved, part)
    assert match is not None
    assert match.order != comparing.own
    assert match.found.max_abs < 1e-5
    comparing.put_right(moved, part, match)
    assert torch.equal(part.tensor, moved.tensor[list(match.order.kept)])


def test_a_result_that_combines_rows_has_no_order() -> None:
    comparing = Comparing(9, Selection("", (8, 0, PADDING), "size"))
    part = torch.cat([ROWS[[8, 0]], torch.zeros(1, 5)])
    match = comparing.compare(Value(ROWS.cumsum(0), 0), made(part.cumsum(0)))
    assert match is not None
    assert match.order == comparing.own
    assert match.found.is_gross


def test_operators_that_occur_several_times_are_matched_for_certain_only_in_equal_sequences() -> None:
    assert matched_tokens("abab", "abab") == {i: (i, True) for i in range(4)}
    found = matched_tokens("xab", "xabab")
    assert found[0] == (0, True)
    assert not found[1][1]
