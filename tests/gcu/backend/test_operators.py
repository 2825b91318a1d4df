"""Every operator that is lowered, against eager, over dtypes, shapes and special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gcu.backend.compared_with_eager import INF, NAN, TOLERANCE, check_all
from tests.gcu.looking import compile_and_look

from kernelscope.gcu.backend import gcu

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTS = [torch.int8, pytest.param(torch.int16, marks=pytest.mark.slow), torch.int32, torch.int64, torch.uint8]

UNARY_FLOAT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin,
    "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh,
    "atanh": torch.atanh, "erf": torch.erf, "erfc": torch.erfc, "sigmoid": torch.sigmoid,
    "reciprocal": torch.reciprocal, "abs": torch.abs, "neg": torch.neg, "sign": torch.sign,
    "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc, "frac": torch.frac,
    "square": torch.square, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus, "elu": F.elu,
    "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "hardswish": F.hardswish, "mish": F.mish,
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite, "logical_not": torch.logical_not,
    "pow2": lambda x: x**2, "pow3": lambda x: x**3, "pow_half": lambda x: x**0.5,
    "pow_frac": lambda x: x**1.7,
    "rpow": lambda x: 2**x, "clamp": lambda x: x.clamp(-0.5, 0.5), "clamp_min": lambda x: x.clamp(min=0.1),
    "add_scalar": lambda x: x + 1.5, "rsub": lambda x: 1 - x, "mul_scalar": lambda x: x * 0.3,
    "div_scalar": lambda x: x / 3, "eq": lambda x: x == 0, "to_float": lambda x: x.float(),
    "to_bool": lambda x: x.bool(), "where": lambda x: torch.where(x > 0, x, -x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 7.0), "nan_to_num": torch.nan_to_num,
}  # fmt: skip

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add, "add_alpha": lambda x, y: torch.add(x, y, alpha=2), "sub": torch.sub, "mul": torch.mul,
    "maximum": torch.maximum, "minimum": torch.minimum, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt,
    "le": torch.le, "gt": torch.gt, "ge": torch.ge, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "where": lambda x, y: torch.where(x > y, x, y), "lerp": lambda x, y: x * 2 - y,
}  # fmt: skip

BINARY_FLOAT: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "div": torch.div, "atan2": torch.atan2, "fmod": torch.fmod, "remainder": torch.remainder,
    "copysign": torch.copysign, "hypot": torch.hypot, "pow": lambda x, y: x.abs() ** y,
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc_div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}  # fmt: skip

BITWISE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "not": lambda x, y: torch.bitwise_not(x),
}  # fmt: skip

REDUCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(), "sum_last": lambda x: x.sum(-1), "sum_first": lambda x: x.sum(0),
    "sum_keep": lambda x: x.sum(-1, keepdim=True), "amax": lambda x: x.amax(-1), "amin": lambda x: x.amin(0),
    "any": lambda x: x.any(-1), "all": lambda x: (x > -1).all(0), "max": lambda x: x.max(),
}  # fmt: skip

REDUCE_FLOAT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda x: x.mean(), "mean_first": lambda x: x.mean(0), "var": lambda x: x.var(-1),
    "std": lambda x: x.std(0), "softmax": lambda x: x.softmax(-1), "softmax_first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1), "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "norm": lambda x: x.norm(dim=-1), "logsumexp": lambda x: x.logsumexp(-1),
    "prod": lambda x: x.prod(-1),
}  # fmt: skip


def special(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Ordinary numbers with NaN, ±inf, ±0 and a subnormal among them."""
    x = torch.randn(*shape, dtype=torch.float64) * 2
    flat = x.view(-1)
    values = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-40]
    flat[: len(values)] = torch.tensor(values, dtype=torch.float64)
    return x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_float(dtype: torch.dtype) -> None:
    check_all(UNARY_FLOAT, [special(dtype, 7, 9)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_float(dtype: torch.dtype) -> None:
    x, y = special(dtype, 6, 11), special(dtype, 6, 11).flip(1)
    check_all({**BINARY, **BINARY_FLOAT}, [x, y])


@pytest.mark.parametrize("dtype", [*INTS, torch.bool], ids=str)
def test_binary_int(dtype: torch.dtype) -> None:
    x = torch.randint(-100, 100, (5, 13)).to(dtype)
    y = torch.randint(-100, 100, (5, 13)).to(dtype)
    table = {**BINARY, **BITWISE}
    if dtype is torch.bool:
        table = {k: f for k, f in table.items() if k not in ("sub", "lerp", "add_alpha")}
    check_all(table, [x, y])


@pytest.mark.parametrize("dtype", [*INTS, torch.bool], ids=str)
def test_unary_int(dtype: torch.dtype) -> None:
    names = (
        "exp sqrt tanh sigmoid sin square relu pow2 pow3 add_scalar mul_scalar div_scalar eq to_float to_bool"
    )
    table = {name: UNARY_FLOAT[name] for name in names.split()}
    if dtype is torch.bool:
        table = {k: f for k, f in table.items() if k not in ("square", "relu", "pow2", "pow3")}
    check_all(table, [torch.randint(0, 7, (4, 9)).to(dtype)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions(dtype: torch.dtype) -> None:
    check_all({**REDUCE, **REDUCE_FLOAT}, [torch.randn(12, 40).to(dtype)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.bool], ids=str)
def test_reductions_of_integers(dtype: torch.dtype) -> None:
    table = (
        REDUCE
        if dtype is not torch.bool
        else {k: f for k, f in REDUCE.items() if k not in ("amax", "amin", "all", "max")}
    )
    check_all(table, [torch.randint(-5, 5, (6, 10)).to(dtype)])


def test_reductions_of_special_values() -> None:
    x = torch.randn(4, 9)
    x[0, 3], x[1, 2], x[2, 2] = NAN, INF, -INF
    table = {k: REDUCE[k] for k in ("sum_last", "amax", "amin", "max")}
    check_all({**table, "softmax": lambda x: x.softmax(-1)}, [x])


def test_long_reductions_are_accurate() -> None:
    x = torch.rand(3, 100_000)
    compiled, _ = compile_and_look(lambda x: (x.sum(-1), x.sum(), x.mean(0)))
    exact = x.double()
    for got, expected in zip(compiled(x), (exact.sum(-1), exact.sum(), exact.mean(0)), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_matmul(dtype: torch.dtype) -> None:
    a, b, bias = (torch.randn(*s).to(dtype) for s in ((9, 17), (17, 40), (40,)))

    def everything(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> Any:
        batch = torch.stack([a, a + 1])
        return a @ b, torch.addmm(bias, a, b), a @ a.t(), b.t() @ a.t(), batch @ b, F.linear(a, b.t(), bias)

    compiled, look = compile_and_look(everything)
    for got, expected in zip(compiled(a, b, bias), everything(a, b, bias), strict=True):
        torch.testing.assert_close(got, expected, rtol=2 * TOLERANCE[dtype][0], atol=10 * TOLERANCE[dtype][1])
    assert not look.fallbacks


def test_large_matmul_is_atens_and_says_so() -> None:
    a = torch.randn(128, 128)
    compiled, look = compile_and_look(lambda a: a @ a)
    torch.testing.assert_close(compiled(a), a @ a)
    assert [f.target for f in look.fallbacks] == ["aten.mm.default"]
    assert "large matmul" in look.fallbacks[0].reason


def test_what_is_not_lowered_is_counted_and_right() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> Any:
        return torch.cumsum(x, 0) + 1, i // 3, torch.sort(x.flatten())[0] * 2

    compiled, look = compile_and_look(f)
    x, i = torch.randn(4, 5), torch.randint(0, 9, (6,))
    for got, expected in zip(compiled(x, i), f(x, i), strict=True):
        torch.testing.assert_close(got, expected)
    assert {f.target.split(".")[1] for f in look.fallbacks} == {"cumsum", "floor_divide", "sort"} or len(
        look.fallbacks
    ) == 3
    assert all(f.reason and "test_operators.py" in f.origin for f in look.fallbacks)


def test_strict_mode_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_STRICT", "1")
    compiled = torch.compile(lambda x: torch.cumsum(x, 0), backend=gcu)
    with pytest.raises(Exception, match=r"CONDUCTOR_STRICT=1[\s\S]*aten.cumsum"):
        compiled(torch.randn(3))
