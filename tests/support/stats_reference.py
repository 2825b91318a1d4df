"""What the statistics should be, from NumPy in float64 and exact sums; and tensors worth trying."""

from __future__ import annotations

import math

import numpy as np
import torch

from kernelscope.fingerprint.stats import Stats

# The documented tolerance: relative, of the mean against the largest size.
TOLERANCE = 1e-12
SMALLEST = 5e-324  # subnormal numbers have no finer steps


def numbers(tensor: torch.Tensor) -> np.ndarray:
    """The elements in float64; absolute values of complex ones, NaN where a part is."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
    if not tensor.is_complex():
        return tensor.to(torch.float64).numpy()
    parts = torch.view_as_real(tensor).to(torch.float64).numpy()
    with np.errstate(all="ignore"):
        sizes = np.hypot(parts[:, 0], parts[:, 1])
    sizes[np.isnan(parts).any(1)] = math.nan
    return sizes


def reference(tensor: torch.Tensor) -> Stats:
    x = numbers(tensor)
    finite = x[np.isfinite(x)]
    nan, pos, neg = int(np.isnan(x).sum()), int((x == np.inf).sum()), int((x == -np.inf).sum())
    zeros, count = int((x == 0).sum()), len(finite)
    if not count:
        return Stats(len(x), None, None, None, None, 0.0, nan, pos, neg, zeros)
    mean = math.fsum(finite) / count
    std = math.sqrt(math.fsum((finite - mean) ** 2) / count)
    l1 = math.fsum(np.abs(finite))
    return Stats(len(x), finite.min(), finite.max(), mean, std, l1, nan, pos, neg, zeros)


def assert_close(seen: Stats, want: Stats, tensor: torch.Tensor) -> None:
    about = (tensor.dtype, tuple(tensor.shape), tensor.stride(), seen, want)
    assert (seen.numel, seen.nan, seen.pos_inf, seen.neg_inf, seen.zeros) == (
        want.numel, want.nan, want.pos_inf, want.neg_inf, want.zeros,
    ), about  # fmt: skip
    if want.min is None or want.max is None or want.mean is None or want.std is None:
        assert (seen.min, seen.max, seen.mean, seen.std, seen.l1) == (None, None, None, None, 0.0), about
        return
    assert seen.min is not None
    assert seen.max is not None
    assert seen.mean is not None
    assert seen.std is not None
    if tensor.is_complex():  # an absolute value is a rounded root
        assert math.isclose(seen.min, want.min, rel_tol=1e-15), about
        assert math.isclose(seen.max, want.max, rel_tol=1e-15), about
    else:
        assert (seen.min, seen.max) == (want.min, want.max), about
    largest = max(abs(want.min), abs(want.max))
    assert math.isclose(seen.l1, want.l1, rel_tol=TOLERANCE), about
    assert abs(seen.mean - want.mean) <= TOLERANCE * largest + SMALLEST, about
    # A deviation below what float64 can tell apart from the mean is none, nor is one whose square underflows.
    assert math.isclose(seen.std, want.std, rel_tol=TOLERANCE, abs_tol=1e-15 * largest + 1e-150), about


def sample(dtype: torch.dtype, numel: int, *, seed: int = 0, wild: bool = False) -> torch.Tensor:
    """Ordinary numbers with some zeros, negative ones among them; `wild` adds NaN and infinities."""
    generator = torch.Generator().manual_seed(seed + numel)
    x = torch.randn(numel, dtype=torch.float64, generator=generator) * 3
    x[torch.rand(numel, generator=generator) < 0.1] = 0.0
    x[torch.rand(numel, generator=generator) < 0.05] = -0.0
    if wild:
        for value in (math.nan, math.inf, -math.inf):
            x[torch.rand(numel, generator=generator) < 0.1] = value
    if dtype.is_complex:
        parts = torch.stack([x, x.flip(0)], 1)
        if dtype == torch.complex128:
            return torch.view_as_complex(parts)
        part = {torch.complex64: torch.float32, torch.complex32: torch.float16}.get(dtype, torch.bfloat16)
        return parts.to(part).view(dtype).reshape(-1)
    if dtype.is_floating_point:
        return (x.abs() if dtype == torch.float8_e8m0fnu else x).to(dtype)
    if dtype == torch.bool:
        return x > 0
    bits = 8 * dtype.itemsize
    signed = dtype not in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    scale = 2.0 ** (min(bits, 53) - 4)
    x = torch.nan_to_num(x, 0.0, 4.0, -4.0).clamp(-7, 7) * scale
    return (x if signed else x.abs()).to(torch.int64).to(dtype)
