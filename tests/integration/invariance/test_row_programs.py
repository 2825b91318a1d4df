"""The first kernel that makes rows depend on others is named; where none does, nothing is."""

from __future__ import annotations

import pytest
import torch
from tests.programs.row_programs import INVARIANT, VARIANT

import kernelscope

# Without functions and products whose last bits are the machine's: those programs are slow tests.
_QUICK = {
    "padding_leaks",
    "centred_before_an_operator_of_any_size",
    "clamped",
    "number_that_was_read_eagerly",
}
_QUICK |= {"split_of_selected_rows", "running_sum_of_sorted_rows", "sorted_and_put_back", "each_expert"}
_QUICK |= {"one_scale_for_eight_bits", "best_of_the_batch", "cache_of_each_sequence"}


def _cases(programs: dict) -> list:
    return [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in programs]


@pytest.mark.parametrize("name", _cases(VARIANT))
def test_the_first_variant_kernel_is_named(name: str) -> None:
    program = VARIANT[name]
    fn, args = program.make()
    result = kernelscope.check_invariance(fn, args, dim=program.dim, ops=program.ops)
    assert result.status == 1, result.details()
    assert result.first is not None, result.details()
    known = " ".join([result.first.kernel_name, *result.first.nodes])
    assert any(word in known for word in program.names), result.details()
    assert result.first.cause in program.causes, result.details()
    assert result.first.max_abs is None or result.first.max_abs <= program.most, result.details()


@pytest.mark.parametrize("name", _cases(INVARIANT))
def test_no_alarm_where_rows_are_independent(name: str) -> None:
    program = INVARIANT[name]
    fn, args = program.make()
    result = kernelscope.check_invariance(fn, args, dim=program.dim, ops=program.ops)
    assert result.status == 0, result.details()
    assert not result.variant
    assert not result.results
    assert any(kernel.verdict == "invariant" for kernel in result.kernels), result.details()


def test_a_selection_that_depends_on_the_other_rows_is_not_called_invariant() -> None:
    """Each row that is returned is right; that it is returned depends on the rows before it."""

    def first_two(x: torch.Tensor) -> torch.Tensor:
        positive = x[:, 0] > 0
        return x[positive & (positive.cumsum(0) < 3)] * 2

    def all_of_them(x: torch.Tensor) -> torch.Tensor:
        return x[x[:, 0] > 0] * 2

    batch = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    assert int((batch[:, 0] > 0).sum()) > 2
    result = kernelscope.check_invariance(first_two, batch, ops="all")
    assert result.status == 2, result.details()
    assert result.results_not_followed == ["result 0"]
    result = kernelscope.check_invariance(all_of_them, batch, ops="all")
    assert result.status == 0, result.details()
