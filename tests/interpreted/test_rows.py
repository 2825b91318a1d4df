"""Rows that are sorted by kernels of Triton, and by ATen where their number is not fixed."""

from __future__ import annotations

import pytest
from tests.programs.row_programs import INVARIANT, VARIANT, made_on

import kernelscope
from kernelscope import InvarianceResult

pytestmark = pytest.mark.usefixtures("inductor_triton")


def checked(name: str) -> InvarianceResult:
    program = VARIANT.get(name) or INVARIANT[name]
    fn, args = made_on(program, "cpu")
    return kernelscope.check_invariance(fn, args, dim=program.dim, ops=program.ops)


@pytest.mark.parametrize("name", ["mean_of_sorted_rows", "product_of_two_experts"])
def test_the_first_variant_kernel_is_named(name: str) -> None:
    result = checked(name)
    assert result.first is not None, result.details()
    known = " ".join([result.first.kernel_name, *result.first.nodes])
    assert any(word in known for word in VARIANT[name].names), result.details()
    assert result.first.max_abs is None or result.first.max_abs <= VARIANT[name].most, result.details()
    assert result.first.cause != "divides-by-rows", result.details()


def test_no_alarm_where_rows_are_independent() -> None:
    result = checked("equal_rows_sorted")
    assert result.status == 0, result.details()
