"""Rows in places of their own, which no kernel is accused of: buffers of experts, padding, selections."""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.row_programs import rows
from torch.nn import functional as F

import kernelscope
from kernelscope.invariance.result import InvarianceResult


def _checked(fn: Any, *args: torch.Tensor, **how: Any) -> InvarianceResult:
    return kernelscope.check_invariance(fn, args, ops="all", **how)


def test_places_in_two_dimensions_that_are_read_again_raise_no_alarm() -> None:
    def experts(x: torch.Tensor) -> torch.Tensor:
        chosen = x[:, :3].argmax(1)
        taken = F.one_hot(chosen, 3)
        place = ((taken.cumsum(0) - 1) * taken).sum(1)
        buffers = x.new_zeros(3, x.shape[0], x.shape[1])
        buffers[chosen, place] = x
        made = torch.stack([(buffers[expert] * (expert + 1)).tanh() for expert in range(3)])
        return made[chosen, place]

    result = _checked(experts, rows(9, 7))
    assert result.status == 0, result.details()
    reasons = [kernel.reason for kernel in result.not_followed]
    assert any("no result of the program depends on that order" in each for each in reasons), result.details()


def test_the_kernel_that_selects_rows_is_named_and_not_the_one_that_takes_them() -> None:
    def top_half(x: torch.Tensor) -> torch.Tensor:
        chosen = x.sum(1).topk((x.shape[0] + 1) // 2).indices
        kept = torch.zeros_like(x)
        kept[chosen] = x[chosen]
        return kept

    result = _checked(top_half, rows(9, 4))
    assert result.first is not None
    assert result.first.kernel_name == "aten.topk.default", result.details()


def test_padding_is_not_accused_of_what_is_computed_for_groups_of_rows() -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        padding = -x.shape[0] % 4
        groups = F.pad(x, (0, 0, 0, padding)).view(-1, 4, x.shape[1])
        scale = groups.abs().amax((1, 2), keepdim=True)
        return ((groups / scale).round() * scale).flatten(0, 1)[: x.shape[0]]

    result = _checked(rounded, rows(9, 4))
    assert result.first is not None
    assert result.first.cause == "not-compared", result.details()
    assert result.kernels[0].kernel_name == "aten.constant_pad_nd.default"
    assert result.kernels[0].verdict == "invariant", result.details()


def test_a_kernel_that_reads_what_was_written_in_part_is_named_with_the_one_that_wrote_it() -> None:
    def all_but_the_rest(x: torch.Tensor) -> torch.Tensor:
        """Rows after the last full four stay zero."""
        made, full = torch.zeros_like(x), x.shape[0] // 4 * 4
        made[:full] = x[:full] * 2
        return made.tanh()

    result = _checked(all_but_the_rest, rows(9, 4))
    assert result.first is not None
    assert "aten.copy_.default" in result.first.joined, result.details()


def test_a_mask_with_as_many_rows_as_the_batch_is_not_taken_apart() -> None:
    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x[:, :, None] * x[:, None]).masked_fill(mask, -1e9).softmax(-1)

    x, mask = rows(9, 9), torch.ones(9, 9).triu(1).bool()
    result = _checked(masked, x, mask)
    assert result.status == 2, result.details()
    assert "arguments of these shapes were taken to have rows: (9, 9), (9, 9)" in result.problem
    assert _checked(masked, x, mask, dim=(0, None)).status == 0
