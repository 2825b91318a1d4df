"""The sign of zero where two numbers compare equal, and bit by bit what else is exact."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.gcu.looking import compile_and_look


def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.maximum(a, b), torch.minimum(a, b), a.clamp(min=0.0), a.clamp(min=-0.0), a.clamp(max=0.0),
        a.clamp(max=-0.0), a.clamp(min=b), a.clamp(max=b), a.clamp(-0.0, 0.0), torch.relu(a), a.abs(),
        a.sign(), -a, a * 1, a + 0, a - 0, a * b, torch.where(a == b, a, b), a.trunc(), a.round(), a.floor(),
        torch.copysign(a, b), a.sqrt(), a.sin(), a.tanh(), a.erf(), torch.stack([a, b]).amax(0),
        torch.stack([a, b]).amin(0),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zeros_have_eagers_sign(dtype: torch.dtype) -> None:
    """In eager the sign may depend on where in a tensor the number stands; then either is right."""
    signs = torch.tensor(list(itertools.product([0.0, -0.0], repeat=2)), dtype=dtype)
    compiled, look = compile_and_look(f)
    pairs = signs.repeat(17, 1)[:67]  # so many that eager's vector code has work, and a rest
    a, b = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
    whole = f(a, b)
    alone = [f(s[0:1], s[1:2]) for s in signs]
    for number, (got, expected) in enumerate(zip(compiled(a, b), whole, strict=True)):
        assert torch.equal(got, expected)
        for place in range(len(a)):
            by_vector = expected[place % 4 : 64 : 4].signbit().unique().tolist()
            by_itself = alone[place % 4][number].signbit().tolist()
            assert bool(got[place].signbit()) in {*by_vector, *by_itself}, (number, place)
    assert not look.fallbacks
