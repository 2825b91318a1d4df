"""The random numbers in a script of `repro` are those that shadow computes, and the kernels draw."""

from __future__ import annotations

import pytest
import torch

from kernelscope.repro.embedded.random_numbers import Drawn, drawing, philox
from kernelscope.shadowing.reference import random_numbers

SEEDS = [0, 1, -1, 0x1234567890ABCDEF, -(1 << 63)]
SIZE = [3, 41]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["rand", "randn"])
def test_floats(seed: int, mode: str) -> None:
    given = torch.tensor(seed)
    drawn = drawing(lambda seed: torch.ops.prims.inductor_random.default(SIZE, seed, mode))(seed=given)
    assert torch.equal(drawn, random_numbers.random(SIZE, seed, mode, 0, triton=False))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("low", "high"), [(0, 2), (-5, 1000), (0, 1 << 40)])
def test_integers(seed: int, low: int, high: int) -> None:
    given = torch.tensor(seed)
    drawn = drawing(lambda seed: torch.ops.prims.inductor_randint.default(low, high, SIZE, seed))(seed=given)
    assert torch.equal(drawn, random_numbers.randint(low, high, SIZE, seed, 0, triton=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_of_triton(seed: int) -> None:
    """A kernel on a GPU has the whole seed for a key, and makes other floats of the words."""
    made = Drawn().uniform(philox(seed, 123, 0)[0], on_cpu=False)
    assert torch.equal(made, random_numbers.random([123], seed, "rand", 0, triton=True))
