"""Programs that Inductor alone gets wrong: layouts that an operator mishandles or that eager has not, NaN.

All are wrong with stock torch 2.13 on a CPU. The operators with a mistake of their own are right in eager,
because eager gives them contiguous tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .wrong_functions import WrongFunction

LAYOUTS, NOT_FINITE, STRIDES_OF_RESULTS = "layouts", "not-finite", "strides-of-results"
NAMESPACE = "kernelscope_wrong_launches"
X = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
LONG = torch.randn(5, 5, 6, generator=torch.Generator().manual_seed(2))


@torch.library.custom_op(f"{NAMESPACE}::rows", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def _rows(x: torch.Tensor) -> torch.Tensor:
    """Takes its argument for contiguous; Inductor may choose the layout of it."""
    return x.as_strided(x.shape, (x.shape[1], 1)) * 1.0


@_rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


rows: Callable[[torch.Tensor], torch.Tensor] = _rows


def reads_a_transposed_sum(x: torch.Tensor) -> torch.Tensor:
    made = x.t().contiguous() + 1
    return rows(made)


def reads_a_transposed_copy(x: torch.Tensor) -> torch.Tensor:
    made = x.t().clone(memory_format=torch.contiguous_format)
    return rows(made)


def reads_a_transposed_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = (x.t() @ y).t().contiguous()
    return rows(made)


def reads_a_reduction(x: torch.Tensor) -> torch.Tensor:
    made = x.permute(2, 1, 0).sum(0)
    return rows(made)


def special() -> tuple[torch.Tensor]:
    return (torch.tensor([1.0, -math.inf, math.nan, math.inf, -0.0, 2.0]),)


def multiplies_by_zero(x: torch.Tensor) -> torch.Tensor:
    nothing = x.sin() * 0
    return nothing + x  # -inf for NaN


def shrinks_softly(x: torch.Tensor) -> torch.Tensor:
    shrunk = F.softshrink(x)
    return shrunk + 1  # 1 for NaN


def takes_a_logarithm(x: torch.Tensor) -> torch.Tensor:
    return torch.xlogy(x * 0, x)  # 0 for NaN


def divides_and_rounds_down(x: torch.Tensor) -> torch.Tensor:
    return x // 1.0  # -inf for NaN


def takes_a_reciprocal_root(x: torch.Tensor) -> torch.Tensor:
    return x**-0.5  # inf for -inf, of -0


def copies_signs(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x, x.t())


def puts_two(x: torch.Tensor) -> torch.Tensor:
    return x.put(torch.tensor([0, 7]), torch.tensor([1.0, 2.0]))


def adds_a_product(x: torch.Tensor) -> torch.Tensor:
    return torch.addr(x, x[:, 0], x[0], beta=0)


FOLDING, KERNEL = "pass constant_fold_uniform_value (joint)", "wrong-kernel"


def _mishandled(fn: Callable[..., Any], *arguments: torch.Tensor) -> WrongFunction:
    named = f"{NAMESPACE}.rows.default"
    return WrongFunction(
        LAYOUTS, fn, lambda: arguments, "result", "inductor", named, "return rows(made)", by_inductor=KERNEL
    )


def _folded(fn: Callable[..., Any], line: str) -> WrongFunction:
    return WrongFunction(NOT_FINITE, fn, special, "output 0", "inductor", FOLDING, line)


def _computed(fn: Callable[..., Any], kernel: str, line: str) -> WrongFunction:
    return WrongFunction(NOT_FINITE, fn, special, "out_ptr0", "inductor", kernel, line, by_inductor=KERNEL)


def _laid_out(fn: Callable[..., Any], step: str, line: str) -> WrongFunction:
    what, verdict = "result 0", "wrong-function"
    return WrongFunction(
        STRIDES_OF_RESULTS, fn, lambda: (X.t(),), what, "inductor", step, line, by_inductor=verdict
    )


WRONG_LAUNCHES = [
    _mishandled(reads_a_transposed_sum, X),
    _mishandled(reads_a_transposed_copy, X),
    _mishandled(reads_a_transposed_product, X, LONG[..., 0]),
    _mishandled(reads_a_reduction, LONG),
    _folded(multiplies_by_zero, "x.sin() * 0"),
    _folded(shrinks_softly, "F.softshrink(x)"),
    _folded(takes_a_logarithm, "torch.xlogy"),
    _computed(divides_and_rounds_down, "cpp_fused_floor_divide_0", "x // 1.0"),
    _computed(takes_a_reciprocal_root, "cpp_fused_pow_0", "x**-0.5"),
    _laid_out(copies_signs, "fake implementation of aten.copysign.Tensor", "torch.copysign"),
    _laid_out(puts_two, "decomposition of aten.put.default", "x.put("),
    _laid_out(adds_a_product, "decomposition of aten.addr.default", "torch.addr"),
]
