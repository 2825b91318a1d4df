"""The random numbers that Inductor's kernels draw, computed again from the seed they were given.

A number depends on the seed and its position alone (Philox4x32-10). Scripts of `repro` contain this text.
"""

from __future__ import annotations

import math
from typing import Any

import torch

LOW = 0xFFFFFFFF


def philox(seed: int, count: int, offset: int) -> list[torch.Tensor]:
    """Four words of 32 bits for each counter; the key is the 64-bit seed."""
    counter = torch.arange(offset, offset + count, dtype=torch.int64)
    words = [counter & LOW, (counter >> 32) & LOW, torch.zeros_like(counter), torch.zeros_like(counter)]
    key = [seed & LOW, seed >> 32 & LOW]
    for _ in range(10):
        a, b = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]  # what is lost above 64 bits is not needed
        words = [
            ((b >> 32) & LOW) ^ words[1] ^ key[0],
            b & LOW,
            ((a >> 32) & LOW) ^ words[3] ^ key[1],
            a & LOW,
        ]
        key = [(key[0] + 0x9E3779B9) & LOW, (key[1] + 0xBB67AE85) & LOW]
    return words


def inductor_random(size: Any, seed: int, mode: str, offset: int, *, triton: bool) -> torch.Tensor:
    """What `prims.inductor_random` gives in a C++ kernel, or in a Triton kernel."""
    words = drawn_words(size, seed, offset, triton)
    one, other = uniform(words[0], triton), uniform(words[1], triton)
    if mode == "rand":
        return one.reshape(size)
    if not triton:
        one, other = 1 - one, 1 - other
    radius = (-2 * one.clamp(min=1e-7 if triton else 0).double().log()).sqrt()  # Box-Muller
    return (radius * (2 * math.pi * other.double()).cos()).float().reshape(size)


def inductor_randint(low: int, high: int, size: Any, seed: int, offset: int, *, triton: bool) -> torch.Tensor:
    """What `prims.inductor_randint` gives."""
    words = drawn_words(size, seed, offset, triton)
    drawn, span = words[0] | (words[1] << 32), high - low
    if span > 1 << 62:  # twice a remainder would not fit into 64 bits
        exact = [(word & 0xFFFFFFFFFFFFFFFF) % span + low for word in drawn.tolist()]
        return torch.tensor(exact, dtype=torch.int64).reshape(size)
    half = (drawn >> 1) & 0x7FFFFFFFFFFFFFFF  # the word has 64 bits and no sign
    return ((half % span * 2 + (drawn & 1)) % span + low).reshape(size)


def drawn_words(size: Any, seed: int, offset: int, triton: bool) -> list[torch.Tensor]:
    return philox(seed if triton else seed & LOW, math.prod(size), offset)  # C++ keeps 32 bits of the seed


def uniform(word: torch.Tensor, triton: bool) -> torch.Tensor:
    if not triton:
        return (word & 0x7FFFFFFF).float() * 4.6566127342e-10
    signed = torch.where(word > 0x7FFFFFFF, word - (1 << 32), word)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10
