"""One tensor in lines of text, in the form of torch's own intermediate-value printer, and a little more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernelscope.fingerprint import Fingerprint, Stats, fingerprint

MOST_SHOWN = 64  # elements; of a larger tensor the numbers only
_INTEGERS = frozenset(
    [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
)


def tensor_lines(
    tensor: torch.Tensor, taken: Fingerprint | None = None, most_shown: int = MOST_SHOWN
) -> list[str]:
    """`taken` is what is known of it already; without it, it is looked at now."""
    tensor = tensor.detach()
    taken = taken or fingerprint(tensor)
    lines = [_shown(tensor)] if tensor.numel() <= most_shown else []
    lines += [
        f"Number of elements:  {tensor.numel()}",
        f"Size:  {tensor.size()}",
        f"Dtype:  {tensor.dtype}",
    ]
    if not tensor.numel():
        lines.append("Values:  none, it is empty")
    elif tensor.is_complex():
        parts = torch.view_as_real(_plain(tensor) if tensor.dtype != torch.complex32 else _wide(tensor))
        for name, part in zip(("real", "imaginary"), parts.unbind(-1), strict=True):
            lines += _number_lines(part, fingerprint(part).stats, f" ({name})")
    else:
        lines += _number_lines(tensor, taken.stats, "")
    return [*lines, f"Bits:  {taken.bits:#018x}"]


def _number_lines(tensor: torch.Tensor, stats: Stats | None, part: str) -> list[str]:
    if stats is None:
        return [f"Values:  no statistics, {tensor.dtype} is not a number by itself"]
    if tensor.dtype in _INTEGERS:
        # Exact: a float64 holds no int64 beyond 2^53.
        array = tensor.cpu().numpy()
        low, high = int(array.min()), int(array.max())
    elif tensor.dtype == torch.bool:
        low, high = bool(stats.min), bool(stats.max)
    else:
        low, high = stats.min, stats.max  # type: ignore[assignment]  # of floats
    finite = stats.finite
    note = "" if finite == stats.numel else f"  (of the {finite} finite elements)"
    if not finite:
        lines = [f"Mean{part}:  none, nothing is finite"]
    else:
        lines = [
            f"Mean{part}:  {stats.mean}{note}",
            f"Min{part}:  {low}{note}",
            f"Max{part}:  {high}{note}",
            f"Std{part}:  {_spread(stats)}{note}",
        ]
    counts = f"NaN{part}:  {stats.nan}", f"Inf{part}:  +{stats.pos_inf} -{stats.neg_inf}"
    return [*lines, *counts, f"Zeros{part}:  {stats.zeros}"]


def _spread(stats: Stats) -> float:
    """As torch.std estimates it; ours divides by the number of elements."""
    assert stats.std is not None
    return stats.std * math.sqrt(stats.finite / (stats.finite - 1)) if stats.finite > 1 else math.nan


def _shown(tensor: torch.Tensor) -> str:
    ways: list[Callable[[], Any]] = [lambda: tensor, lambda: _wide(tensor), lambda: tensor.view(torch.uint8)]
    for way in ways:
        try:
            return str(way())
        except (RuntimeError, TypeError, NotImplementedError):  # a dtype that torch cannot print
            continue
    return f"(torch cannot print {tensor.dtype})"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg()


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return _plain(tensor).to(torch.complex64 if tensor.is_complex() else torch.float32)
