"""A decision on one result, as the tests of the judge ask for it."""

from __future__ import annotations

import torch

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.verdict_record import Verdict

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def rounded(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return wide.to(dtype)


def decide(made: torch.Tensor, wide: torch.Tensor, eager: torch.Tensor | None = None) -> Verdict:
    generator = torch.Generator().manual_seed(0)
    eps = torch.finfo(made.dtype).eps

    def jittered() -> torch.Tensor:
        return wide * (1 + eps * (torch.rand(wide.shape, generator=generator, dtype=torch.float64) - 0.5))

    return judge(made, eager if eager is not None else wide.to(made.dtype), lambda: wide, jittered, eps)
