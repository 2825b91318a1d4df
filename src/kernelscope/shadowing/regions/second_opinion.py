"""Whether differences of a whole function are no more than what rounding does to it elsewhere.

A function that rounds to integers, sorts or compares amplifies a rounding of one element to any size. Small
errors then change other elements than the compiled code changed, but about as many, and about as much.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_RUNS = 8
_MORE = 4.0  # times as many elements, and times as far


def is_explained(
    made: torch.Tensor, wide: torch.Tensor, jittered: Callable[[int], torch.Tensor], eager: torch.Tensor
) -> bool:
    """`jittered` gives the result with small errors, another one for each number."""
    if not (made.is_floating_point() or made.is_complex()) or wide.shape != made.shape:
        return False
    exact = _reals(wide)
    errors = torch.stack([_away(_reals(jittered(i)), exact) for i in range(_RUNS)])
    c, e = _away(_reals(made), exact), _away(_reals(eager), exact)
    usual = torch.maximum(errors.median(dim=0).values, e).clamp(
        min=float(exact.abs().mean()) * 1e-12 + 1e-300
    )
    many = (c > 16 * usual).sum()
    most = max(int((one > 16 * usual).sum()) for one in errors)
    return 0 < int(many) <= _MORE * most and float(c.max()) <= _MORE * float(errors.max())


def _reals(value: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.double().flatten()


def _away(value: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    both = (value == exact) | (value.isnan() & exact.isnan())
    return torch.where(both, torch.zeros_like(exact), (value - exact).abs()).nan_to_num(nan=torch.inf)
