"""The random numbers that shadow and the scripts of `repro` draw are those of a second implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kernelscope.repro.embedded.random_numbers import drawing
from kernelscope.shadowing.reference.random_numbers import inductor_random

SEEDS = [0, 1, -1, 0x1234567890ABCDEF, -(1 << 63)]
SIZE = [3, 41]
LOW = np.uint64(0xFFFFFFFF)
SCALE = np.float32(4.6566127342e-10)


def philox(seed: int, count: int) -> list[np.ndarray]:
    """Philox4x32-10 in unsigned numbers of 64 bits."""
    offsets = np.arange(count, dtype=np.uint64)
    words = [offsets & LOW, offsets >> np.uint64(32), np.zeros_like(offsets), np.zeros_like(offsets)]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [
            (b >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]),
            b & LOW,
            (a >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]),
            a & LOW,
        ]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)]
    return words


def uniform(words: np.ndarray) -> np.ndarray:
    return (words & np.uint64(0x7FFFFFFF)).astype(np.float32) * SCALE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["rand", "randn"])
def test_floats(seed: int, mode: str) -> None:
    drawn = drawing(lambda seed: torch.ops.prims.inductor_random.default(SIZE, seed, mode))
    words = philox(seed & 0xFFFFFFFF, math.prod(SIZE))
    one = uniform(words[0])
    if mode == "randn":
        first, second = np.float32(1) - one, np.float32(1) - uniform(words[1])
        radius = np.sqrt(-2 * np.log(first.astype(np.float64)))
        one = (radius * np.cos(2 * math.pi * second.astype(np.float64))).astype(np.float32)
    assert torch.equal(drawn(seed=torch.tensor(seed)), torch.from_numpy(one.reshape(SIZE)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("low", "high"), [(0, 2), (-5, 1000), (0, 1 << 40)])
def test_integers(seed: int, low: int, high: int) -> None:
    drawn = drawing(lambda seed: torch.ops.prims.inductor_randint.default(low, high, SIZE, seed))
    words = philox(seed & 0xFFFFFFFF, math.prod(SIZE))
    whole = words[0] | (words[1] << np.uint64(32))
    expected = (whole % np.uint64(high - low)).astype(np.int64) + low
    assert torch.equal(drawn(seed=torch.tensor(seed)), torch.from_numpy(expected.reshape(SIZE)))


@pytest.mark.parametrize("seed", SEEDS)
def test_of_triton(seed: int) -> None:
    """A kernel on a GPU has the whole seed for a key, and makes other floats of the words."""
    signed = philox(seed, 123)[0].astype(np.uint32).view(np.int32)
    expected = np.where(signed < 0, -signed - 1, signed).astype(np.float32) * SCALE
    assert torch.equal(inductor_random([123], seed, "rand", 0, triton=True), torch.from_numpy(expected))
