"""Rounding of what the compiler makes of an operator: its decomposition may cancel digits that eager keeps.

The gradient of soft_margin_loss is `sigmoid(x) - 1` when it is decomposed: for a large x nothing but rounding
is left of it. If both are the same in float64, such an error is rounding too.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.probes.compiler_steps.decompositions import decomposition_of

from .wide_mode import Wide

_SAME = 1e-4  # of what small errors change: float64 has 29 more bits than float32


class Decomposed(Wide):  # type: ignore[no-untyped-call]
    """Computes in float64, each operator as the compiler decomposes it."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)
        self._inside: list[Any] = []  # operators whose decompositions are under way

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.OpOverload) and func not in self._inside and _is_plain(func):
            made = self._decomposed(func, args, kwargs or {})
            if made is not NotImplemented:
                return made
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        decomposition = decomposition_of(func)
        if decomposition is None:
            return NotImplemented
        self._inside.append(func)
        try:
            with self:
                return decomposition(*args, **kwargs)
        except Exception:  # not meant for these arguments: the compiler then keeps the operator
            return NotImplemented
        finally:
            self._inside.pop()


def is_same_in_double(eager: torch.Tensor, decomposed: torch.Tensor, moved: torch.Tensor) -> bool:
    """Whether two float64 results differ by far less than small errors change them, as in `moved`."""
    if eager.shape != decomposed.shape or eager.shape != moved.shape:
        return False
    both_nan = eager.isnan() & decomposed.isnan()
    allowed = _SAME * (moved - decomposed).abs() + 1e-11 * eager.abs()
    return bool(((eager == decomposed) | both_nan | ((eager - decomposed).abs() <= allowed)).all())


def _is_plain(func: Any) -> bool:
    return not func._schema.is_mutable and torch.Tag.nondeterministic_seeded not in func.tags
