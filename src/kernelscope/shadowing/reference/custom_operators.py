"""Operators that are not torch's own: they may write to arguments without declaring it."""

from __future__ import annotations

from typing import Any

import torch

_TORCHS = frozenset(
    (
        "aten",
        "prims",
        "prim",
        "quantized",
        "onednn",
        "mkldnn",
        "mkldnn_prepacked",
        "mkl",
        "inductor",
        "rngprims",
    )
)


def is_custom(operator: Any) -> bool:
    """Of the program, or of a library."""
    return isinstance(operator, torch._ops.OpOverload) and operator.namespace not in _TORCHS


def copied_as_it_lies(value: Any) -> Any:
    """A tensor in memory of its own, with the same strides, also where elements overlap."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.clone()
    if value.layout != torch.strided or copy.stride() == value.stride() or not value.numel():
        return copy
    reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    return value.as_strided((reach,), (1,)).clone().as_strided(value.shape, value.stride())
