"""Equal numbers, in the order in which Inductor's kernels leave them. tests/interpreted has those kernels."""

from __future__ import annotations

import pytest
import torch

from kernelscope.shadowing.reference.small_errors.ties import chooses_order, sorted_by_inductor

aten = torch.ops.aten


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 60, 512, 600])
def test_it_is_sorted(count: int, dtype: torch.dtype, descending: bool) -> None:
    given = torch.randint(0, 4, (3, count, 2), generator=torch.Generator().manual_seed(count)).to(dtype)
    if dtype.is_floating_point:
        given[given == 2] = torch.nan
    values, indices = sorted_by_inductor(aten.sort.default, (given, 1, descending), {})
    expected = given.sort(1, descending).values
    torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(given.gather(1, indices), expected, rtol=0, atol=0, equal_nan=True)
    assert (indices.sort(1).values == torch.arange(count)[None, :, None]).all(), "an element is named twice"


def test_a_network_is_not_stable() -> None:
    given = torch.zeros(20, dtype=torch.int64)
    assert not torch.equal(sorted_by_inductor(aten.sort.default, (given,), {})[1], torch.arange(20))


def test_a_stable_sort_has_one_order() -> None:
    assert chooses_order(aten.sort.default, {})
    assert chooses_order(aten.sort.stable, {"stable": False})
    assert not chooses_order(aten.sort.stable, {"stable": True})
    assert not chooses_order(aten.topk.default, {})


def test_later_operators_find_the_strides_of_eager() -> None:
    given = torch.randint(0, 3, (4, 5)).t()
    ours, eager = sorted_by_inductor(aten.sort.default, (given, 1), {}), given.sort(1)
    assert [part.stride() for part in ours] == [part.stride() for part in eager]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32], ids=str)
def test_what_cannot_be_compared_is_left_to_aten(dtype: torch.dtype) -> None:
    given = torch.tensor([3, 1, 2]).to(dtype)
    try:
        eager = given.sort()
    except RuntimeError:
        pytest.skip(f"torch does not sort {dtype} here")
    assert torch.equal(sorted_by_inductor(aten.sort.default, (given,), {})[1], eager.indices)
