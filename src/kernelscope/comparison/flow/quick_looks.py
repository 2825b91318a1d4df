"""Whether two values may be the same, at a look; and whether both programs were given the same."""

from __future__ import annotations

import math

import torch

from .calls_and_values import Value
from .kept_values import Sketch


def is_far(whole: torch.Tensor, tensor: torch.Tensor, noise: float, part: Value, reach: float) -> bool:
    """Much further than rounding moves it, all together: most series are, and need no closer look."""
    if not part.eps:
        return False
    if whole.is_complex() != tensor.is_complex():
        return True
    size = float(tensor.norm())
    apart = float((whole.to(tensor.device, tensor.dtype) - tensor).norm())
    allowed = 64 * (noise + part.eps * (1 + math.sqrt(reach))) * size + 64 * part.tiny * math.sqrt(
        tensor.numel()
    )
    return math.isfinite(apart) and math.isfinite(size) and apart > allowed


def is_as_large(other: Sketch, sketch: Sketch, value: Value, noise: float) -> bool:
    slack = 0.05 + 16 * max(noise, value.eps)
    return abs(other.rms - sketch.rms) <= slack * max(other.rms, sketch.rms) + 16 * value.tiny


def is_same_leaf(kept: torch.Tensor, tensor: torch.Tensor, eps: float) -> bool:
    if (kept.is_floating_point() or kept.is_complex()) != (tensor.is_floating_point() or tensor.is_complex()):
        return False
    if kept.is_complex() != tensor.is_complex():
        return False
    if not eps:
        return bool((kept.to(tensor.device) == tensor).all())
    if tensor.is_complex():
        kept, tensor = torch.view_as_real(kept.resolve_conj()), torch.view_as_real(tensor.resolve_conj())
    a, b = kept.to(tensor.device, torch.float64), tensor.to(torch.float64)
    return bool((((a - b).abs() <= eps * b.abs() + 1e-30) | (a == b) | (a.isnan() & b.isnan())).all())
