"""NaN, inf and -inf are three kinds of values beside the finite ones, and a kernel must give the right one.

A kernel's value is right if it is of the kind that eager has there, or float64 rounded to the result's dtype.
Where eager is not finite and float64 is (an overflow on the way, in a narrow dtype), a finite value has to be
close to that of float64. Small errors explain another kind only next to a boundary: log(1 - p) of a p that is
nearly 1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_RUNS, _RUNS_AT_MOST = 4, 16


def is_other_kind(c: torch.Tensor, e: torch.Tensor, r: torch.Tensor, most: float) -> torch.Tensor:
    """By element: c is not of the kind of eager's e or float64's r, or it is finite and e is not."""
    like_eager = torch.where(e.isfinite(), c.isfinite(), _same_kind(c, e))
    is_wide_finite = r.abs() <= most
    like_wide = torch.where(is_wide_finite, c.isfinite() & e.isfinite(), _same_kind(c, _rounded(r, most)))
    both = e.isfinite() & is_wide_finite
    return torch.where(both, ~c.isfinite(), ~like_eager & ~like_wide)


def unexplained(
    c: torch.Tensor,
    e: torch.Tensor,
    r: torch.Tensor,
    moved: Callable[[], torch.Tensor],
    most: float,
    tolerance: Callable[[torch.Tensor], torch.Tensor],
    *,
    adds: bool,
    pairs: bool,
) -> torch.Tensor:
    """The elements that are of another kind than small errors explain.

    `moved` is float64 with small errors added, `tolerance` how far an element may be off, from how far these
    moved it. With `adds` many numbers go into one, so that their order decides how an overflow ends. With
    `pairs` two elements are one complex number, of which only one part need be infinite.
    """
    wrong = is_other_kind(c, e, r, most)
    if pairs:
        wrong &= ~(_either(~c.isfinite()) & (_either(~e.isfinite()) | _either(r.abs() <= most, negate=True)))
    rounded = _rounded(r, most)
    if adds:
        agree = torch.where(e.isfinite(), rounded.isfinite(), _same_kind(e, rounded))
        wrong &= agree
    is_near = c.isfinite() & rounded.isfinite()  # and eager is not
    spread = torch.zeros_like(r)
    for run in range(_RUNS_AT_MOST):
        if run >= _RUNS:
            wrong &= ~(is_near & ((c - r).abs() <= tolerance(spread)))
        if not bool(wrong.any()):
            break
        other = _rounded(moved(), most)
        is_boundary = other.isfinite() != rounded.isfinite()
        wrong &= ~(is_boundary | (_same_kind(c, other) & ~is_near))
        spread = torch.maximum(spread, torch.nan_to_num(other - r, nan=0, posinf=0, neginf=0).abs())
    return wrong


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of values of which one is not finite; two finite ones are of one kind too."""
    return (a.isnan() & b.isnan()) | (a.isfinite() & b.isfinite()) | (a.isinf() & (a == b))


def _rounded(r: torch.Tensor, most: float) -> torch.Tensor:
    """With the infinities that a narrower dtype has."""
    return torch.where(r.abs() > most, r.sign() * torch.inf, r)


def _either(parts: torch.Tensor, *, negate: bool = False) -> torch.Tensor:
    """Whether it is so for one of the two parts of a complex number."""
    both = (~parts if negate else parts).reshape(-1, 2)
    return both.any(1, keepdim=True).expand(both.shape).flatten()
