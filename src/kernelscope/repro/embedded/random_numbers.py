"""For scripts whose eager part draws random numbers: eager then draws what a compiled kernel draws.

This file's text goes into such a script as it is, after `embedded.py`. Inductor's numbers depend on the seed
and the place alone (Philox4x32-10), and eager's on neither.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch._inductor.inductor_prims  # registers prims.inductor_random
from torch.utils._python_dispatch import TorchDispatchMode

LOW = 0xFFFFFFFF


def philox(seed: int, count: int, offset: int) -> list[torch.Tensor]:
    """Four words of 32 bits for each counter."""
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


class Drawn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws from a seed as the kernels do: C++ on a CPU, Triton elsewhere."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prims.inductor_random.default:
            if kwargs.get("align_dtype") is not None:
                raise NotImplementedError("numbers that are drawn as eager does")
            size, seed, mode = args
            return self.floats(size, seed, mode, kwargs.get("offset", 0))
        if func is torch.ops.prims.inductor_randint.default:
            low, high, size, seed = args
            words = self.words(size, seed, kwargs.get("offset", 0))
            drawn = words[0] | (words[1] << 32)
            half, span = (drawn >> 1) & 0x7FFFFFFFFFFFFFFF, high - low  # its first bit is no sign
            rest = (half % span * 2 + (drawn & 1)) % span
            return (rest + low).reshape(size).to(seed.device)
        return func(*args, **kwargs)

    def floats(self, size: Any, seed: torch.Tensor, mode: str, offset: int) -> torch.Tensor:
        on_cpu, words = seed.device.type == "cpu", self.words(size, seed, offset)
        one, other = (self.uniform(word, on_cpu) for word in words[:2])
        if mode == "rand":
            return one.reshape(size).to(seed.device)
        if on_cpu:
            one, other = 1 - one, 1 - other
        radius = (-2 * one.clamp(min=0 if on_cpu else 1e-7).double().log()).sqrt()
        normal = radius * (2 * math.pi * other.double()).cos()
        return normal.float().reshape(size).to(seed.device)

    def words(self, size: Any, seed: torch.Tensor, offset: int) -> list[torch.Tensor]:
        number = int(seed)
        return philox(number & LOW if seed.device.type == "cpu" else number, math.prod(size), offset)

    def uniform(self, word: torch.Tensor, on_cpu: bool) -> torch.Tensor:
        if on_cpu:
            return (word & 0x7FFFFFFF).float() * 4.6566127342e-10
        signed = torch.where(word > 0x7FFFFFFF, word - (1 << 32), word)
        return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10


def drawing(eager: Any) -> Any:
    def drawn(**given: Any) -> Any:
        with Drawn():  # type: ignore[no-untyped-call]
            return eager(**given)

    return drawn
