"""The part of scripts that makes eager draw the random numbers of a compiled kernel.

This file's text goes into these scripts as it is, after that of `shadowing/reference/random_numbers.py`.
"""

from __future__ import annotations

from typing import Any

import torch._inductor.inductor_prims  # registers prims.inductor_random
from torch.utils._python_dispatch import TorchDispatchMode

from kernelscope.shadowing.reference.random_numbers import inductor_randint, inductor_random


class Drawn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws from a seed as the kernels do: C++ on a CPU, Triton elsewhere."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        draws: dict[Any, Any] = {
            torch.ops.prims.inductor_random.default: inductor_random,
            torch.ops.prims.inductor_randint.default: inductor_randint,
        }
        if func not in draws:
            return func(*args, **kwargs)
        if kwargs.get("align_dtype") is not None:
            raise NotImplementedError("align_dtype: the kernel draws as eager does")
        seed = next(each for each in args if isinstance(each, torch.Tensor))
        given = [int(each) if each is seed else each for each in args]
        is_triton = seed.device.type != "cpu"
        return draws[func](*given, kwargs.get("offset", 0), triton=is_triton).to(seed.device)


def drawing(eager: Any) -> Any:
    def drawn(**given: Any) -> Any:
        with Drawn():  # type: ignore[no-untyped-call]
            return eager(**given)

    return drawn
