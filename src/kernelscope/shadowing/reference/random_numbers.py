"""The random numbers that Inductor's kernels draw, computed again from the seed they were given.

Counter-based (Philox4x32-10): the number at a place depends on the seed and the place alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SCALE = np.float32(4.6566127342e-10)


def philox(seed: int, offsets: np.ndarray) -> list[np.ndarray]:
    """Four words for each counter, as uint64 arrays below 2³²; the key is the 64-bit seed."""
    words = [offsets & _LOW, offsets >> np.uint64(32), np.zeros_like(offsets), np.zeros_like(offsets)]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = _MULTIPLIERS[0] * words[0], _MULTIPLIERS[1] * words[2]
        words = [
            (b >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]),
            b & _LOW,
            (a >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]),
            a & _LOW,
        ]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, _WEYL, strict=True)]
    return words


def random(size: Sequence[int], seed: int, mode: str, offset: int, *, triton: bool) -> torch.Tensor:
    """What `prims.inductor_random` gives in a C++ kernel, or in a Triton kernel."""
    words = philox(_key(seed, triton), _offsets(size, offset))
    if mode == "rand":
        values = _uniform(words[0], triton)
    elif triton:  # Box-Muller on the first two words
        values = _normal(np.maximum(np.float32(1e-7), _uniform(words[0], triton)), _uniform(words[1], triton))
    else:
        one = np.float32(1)
        values = _normal(one - _uniform(words[0], triton), one - _uniform(words[1], triton))
    return torch.from_numpy(values.astype(np.float32).reshape(tuple(size)))


def randint(
    low: int, high: int, size: Sequence[int], seed: int, offset: int, *, triton: bool
) -> torch.Tensor:
    """What `prims.inductor_randint` gives."""
    words = philox(_key(seed, triton), _offsets(size, offset))
    drawn = words[0] | (words[1] << np.uint64(32))
    values = (drawn % np.uint64(high - low)).astype(np.int64) + low
    return torch.from_numpy(values.reshape(tuple(size)))


def _key(seed: int, triton: bool) -> int:
    return seed & 0xFFFFFFFFFFFFFFFF if triton else seed & 0xFFFFFFFF  # a C++ kernel keeps 32 bits of it


def _offsets(size: Sequence[int], offset: int) -> np.ndarray:
    return np.arange(offset, offset + math.prod(size), dtype=np.uint64)


def _normal(u1: np.ndarray, u2: np.ndarray) -> np.ndarray:
    radius: np.ndarray = np.sqrt(-2 * np.log(u1.astype(np.float64)))
    return radius * np.cos(2 * math.pi * u2.astype(np.float64))


def _uniform(words: np.ndarray, triton: bool) -> np.ndarray:
    if triton:
        signed = words.astype(np.uint32).view(np.int32)
        return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * _SCALE
    return (words & np.uint64(0x7FFFFFFF)).astype(np.float32) * _SCALE
