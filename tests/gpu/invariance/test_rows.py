"""Which kernel makes rows depend on others, on a GPU: what is said is what the rows alone show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.programs.row_programs import INVARIANT, VARIANT, made_on
from torch import nn
from torch.nn import functional as F

import kernelscope

# Their difference is rounding on a CPU; whether there is one on this GPU is for the rows themselves to say.
_ROUNDING = {"linear", "split_in_the_program", "eager_product", "flattened", "contrast", "split_by_size"}
_ROUNDING |= {"split_after_sorting", "split_of_selected_rows"}


def rows_differ(fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether the compiled function gives a row other bits alone, or among fewer rows."""
    torch._dynamo.reset()
    compiled = torch.compile(fn)
    whole = compiled(*args)
    count = args[0].shape[0]
    for size in (1, 2, 3, 7, 8):
        for start in (0, count - size):
            some = compiled(*(a[start : start + size] for a in args))
            if not torch.equal(some, whole[start : start + size]):
                return True
    return False


@pytest.mark.parametrize("name", sorted(set(VARIANT) - _ROUNDING))
def test_the_first_variant_kernel_is_named(name: str) -> None:
    program = VARIANT[name]
    fn, args = made_on(program, "cuda")
    result = kernelscope.check_invariance(fn, args, dim=program.dim, ops=program.ops)
    assert result.status == 1, result.details()
    assert result.first is not None, result.details()
    known = " ".join([result.first.kernel_name, *result.first.nodes])
    assert any(word in known for word in program.names), result.details()
    assert result.first.max_abs is None or result.first.max_abs <= program.most, result.details()


@pytest.mark.parametrize("name", INVARIANT)
def test_no_alarm_where_rows_are_independent(name: str) -> None:
    program = INVARIANT[name]
    fn, args = made_on(program, "cuda")
    result = kernelscope.check_invariance(fn, args, dim=program.dim, ops=program.ops)
    if result.status == 1:  # kernels are compiled for sizes: the last bits may be others
        assert result.first is not None
        assert result.first.max_abs < 1e-5, result.details()
        assert result.first.cause in ("other-kernel", "other-config", "size", "split-reduction"), (
            result.details()
        )
    else:
        assert result.status == 0, result.details()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads(rows: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(rows, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))


def weights(k: int, n: int, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    torch.manual_seed(1)
    layer = nn.Linear(k, n).to("cuda", dtype).requires_grad_(False)
    return lambda x: F.gelu(layer(x))


PRODUCTS = {
    "float32": (weights, (2048, 512, torch.float32), 9),
    "float32, many rows": (weights, (1024, 256, torch.float32), 300),
    "bfloat16": (weights, (4096, 1024, torch.bfloat16), 64),
    "float16, many rows": (weights, (2048, 2048, torch.float16), 500),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_cublas_does_is_said(name: str) -> None:
    make, how, count = PRODUCTS[name]
    fn = make(*how)
    x = torch.randn(count, how[0], device="cuda", dtype=how[2])
    result = kernelscope.check_invariance(fn, (x,))
    assert result.status == int(rows_differ(fn, (x,))), result.details()
    if result.status:
        assert result.first is not None
        assert "mm" in " ".join([result.first.kernel_name, *result.first.joined]), result.details()
        assert result.first.cause in ("library-call", "other-kernel"), result.details()


def test_flash_attention() -> None:
    args = heads(9)
    result = kernelscope.check_invariance(attention, args)
    assert result.status == int(rows_differ(attention, args)), result.details()
    assert any("attention" in kernel.kernel_name for kernel in result.kernels), result.details()
