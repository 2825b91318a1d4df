"""What operators of Inductor's draw from the seeds that they are given."""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.shadowing.reference.node_kinds import LOOKUP_SEED, RANDINT, RANDOM
from kernelscope.shadowing.reference.random_numbers import inductor_randint, inductor_random


def drawn(target: Any, args: Any, offset: int, *, triton: bool) -> torch.Tensor | None:
    """As a Triton kernel draws, or a C++ kernel; None: it draws from no seed."""
    if target is LOOKUP_SEED:
        found: torch.Tensor = args[0][args[1]]
        return found
    if target is RANDOM:
        size, seed, mode = args
        return inductor_random(size, int(seed), mode, offset, triton=triton).to(seed.device)
    if target is RANDINT:
        low, high, size, seed = args
        return inductor_randint(low, high, size, int(seed), offset, triton=triton).to(seed.device)
    return None
