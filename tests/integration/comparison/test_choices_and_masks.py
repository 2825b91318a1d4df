"""What says little of the numbers that it was made of, or of what it stands for."""

from __future__ import annotations

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
