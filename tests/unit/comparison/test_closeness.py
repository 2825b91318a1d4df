"""Differences of hand-made values: rounding is within, errors are not."""

from __future__ import annotations

import torch

from kernelscope.comparison.closeness import closeness

_EPS = torch.finfo(torch.bfloat16).eps


def _values(count: int = 512) -> tuple[torch.Tensor, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(count, generator=generator)
    shaken = [value * (1 + (torch.rand(count, generator=generator) - 0.5) * _EPS) for _ in range(4)]
    return value, shaken


def test_one_rounding_is_within() -> None:
    value, shaken = _values()
    assert closeness(value.to(torch.bfloat16), value, shaken, _EPS).within


def test_a_small_factor_is_found_by_its_gain() -> None:
    value, shaken = _values()
    found = closeness((value * 1.01).to(torch.bfloat16), value, shaken, _EPS)
    assert not found.within
    assert found.what == "gain"


def test_one_wrong_element_is_found() -> None:
    value, shaken = _values()
    other = value.to(torch.bfloat16).clone()
    other[7] += 1
    assert closeness(other, value, shaken, _EPS).what == "element"


def test_an_infinity_on_one_side_is_found() -> None:
    value, shaken = _values()
    other = value.clone()
    other[3] = torch.inf
    assert closeness(other, value, shaken, _EPS).what == "not-finite"


def test_integers_may_differ_where_a_rounding_flips_them() -> None:
    value = torch.tensor([1, 2, 3, 4])
    flipped = [torch.tensor([1, 3, 2, 4])]
    assert closeness(torch.tensor([1, 3, 2, 4]), value, flipped, _EPS).within
    assert not closeness(torch.tensor([1, 3, 2, 4]), value, [value.clone()], _EPS).within


def test_numbers_near_zero_are_rounded_to_the_smallest_of_their_dtype() -> None:
    value = torch.full((64,), 2e-8)
    other, eps = value.to(torch.float16), torch.finfo(torch.float16).eps
    assert not closeness(other, value, [value.clone()], eps).within
    assert closeness(other, value, [value.clone()], eps, tiny=2**-24).within
