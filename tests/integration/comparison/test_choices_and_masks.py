"""What says little of the numbers that it was made of, or of what it stands for."""

from __future__ import annotations

import pytest
import torch

import kernelscope


def masked(x: torch.Tensor) -> torch.Tensor:
    scores = x @ x.T
    later = torch.ones(8, 8, dtype=torch.bool).triu(1)
    return torch.where(later, torch.finfo(scores.dtype).min, scores).softmax(-1) @ x


def test_the_least_number_of_a_dtype_counts_nothing() -> None:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    result = kernelscope.compare(masked, masked, (x,), other_args=(x.bfloat16(),))
    assert result.status == 0, result.details()


def constant(scores: torch.Tensor, how: str) -> torch.Tensor:
    """An additive mask whose number bfloat16 does not have."""
    if how == "full":
        mask = torch.full((8, 8), -1e4, dtype=scores.dtype).triu(1)
    elif how == "like":
        mask = torch.full_like(scores, -1e5).triu(1)
    else:
        mask = (1.0 - torch.ones(8, 8, dtype=scores.dtype).tril()) * -10000.0
    return (scores + mask).softmax(-1)


@pytest.mark.parametrize("how", ["full", "like", "product"])
def test_the_number_of_a_mask_counts_nothing(how: str) -> None:
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    result = kernelscope.compare(constant, constant, (x, how), other_args=(x.bfloat16(), how))
    assert result.status == 0, result.details()


def numbered(rows: torch.Tensor) -> torch.Tensor:
    return torch.ones(600, dtype=rows.dtype).cumsum(0) * rows


def test_positions_that_a_dtype_does_not_have_are_named() -> None:
    x = torch.randn(600, generator=torch.Generator().manual_seed(0))
    result = kernelscope.compare(numbered, numbered, (x,), other_args=(x.bfloat16(),))
    assert result.first is not None, result.details()
    assert result.first.kind == "rounds-whole-numbers", result.details()


def pieces(factor: float) -> torch.Tensor:
    """One line that makes numbers without dimensions, and rows."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    made = [x[i].sum() if i != 1 else x[:, :4].sum(0) for i in (0, 1, 2)]
    return torch.cat([each.reshape(-1) for each in made]) * factor


def test_a_line_may_make_numbers_without_dimensions_and_rows() -> None:
    assert kernelscope.compare(pieces, pieces, (1.0,)).status == 0
    wrong = kernelscope.compare(pieces, pieces, (1.0,), other_args=(2.0,))
    assert wrong.first is not None, wrong.details()
    assert wrong.first.call.name == "aten.mul.Tensor", wrong.details()


def at_once(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ weight) @ weight.T


def in_steps(weight: torch.Tensor, x: torch.Tensor, scale: float) -> list[torch.Tensor]:
    """As a loop that generates: of each result, a choice is made."""
    made = []
    for row in x.split(1):
        made.append(torch.tanh(row @ weight) * scale @ weight.T)
        made[-1].argmax(-1)
    return made


def test_numbers_of_which_only_a_choice_was_made_are_compared() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(16, 16, generator=generator), torch.randn(6, 16, generator=generator)
    right = kernelscope.compare(at_once, in_steps, (weight, x), other_args=(weight, x, 1.0))
    assert right.status == 0, right.details()
    wrong = kernelscope.compare(at_once, in_steps, (weight, x), other_args=(weight, x, 1.2))
    assert wrong.status == 1, wrong.details()
    assert wrong.first is not None
    assert wrong.first.call.name == "aten.mul.Tensor", wrong.details()
