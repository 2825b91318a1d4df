"""Every operator that is lowered, against eager, over dtypes, shapes and special values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gcu.looking import compile_and_look

from kernelscope.gcu.backend import gcu

NAN, INF = float("nan"), float("inf")
TOLERANCE = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (2e-6, 1e-6),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
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
    "copysign": torch.copysign, "pow": lambda x, y: x.abs() ** y,
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


def compare(name: str, got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == expected.dtype, name
    assert got.shape == expected.shape, name
    assert got.stride() == expected.stride(), name
    rtol, atol = TOLERANCE.get(dtype, (0, 0)) if got.dtype.is_floating_point else (0, 0)
    if dtype not in TOLERANCE and got.dtype.is_floating_point:
        rtol, atol = 2e-6, 1e-6
    torch.testing.assert_close(
        got, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )


def check_all(
    table: dict[str, Callable[..., torch.Tensor]], args: Sequence[torch.Tensor], allowed: Sequence[str] = ()
) -> None:
    """All functions of a table in one graph, against eager.

    Not through oneDNN, which eager uses on x86_64: its gelu(inf) is NaN.
    """

    def everything(*given: torch.Tensor) -> list[torch.Tensor]:
        return [f(*given) for f in table.values()]

    compiled, look = compile_and_look(everything)
    got = compiled(*args)
    with torch.backends.mkldnn.flags(enabled=False):
        expected = everything(*args)
    for name, a, b in zip(table, got, expected, strict=True):
        compare(name, a, b, args[0].dtype)
    stray = {f.target for f in look.fallbacks} - set(allowed)
    assert not stray, f"through ATen: {stray}"


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


def test_mixed_dtypes() -> None:
    f, i, b = torch.randn(4, 6), torch.randint(0, 5, (4, 6)), torch.rand(4, 6) > 0.5

    def everything(f: torch.Tensor, i: torch.Tensor, b: torch.Tensor) -> Any:
        half = f.to(torch.bfloat16)
        return (
            f + i,
            i * b,
            f * b,
            half + f,
            i / 2,
            i + 1.5,
            half * 2,
            (f > i).to(torch.int32),
            i.to(torch.float16),
        )

    check_all({"all": lambda *a: torch.stack([t.double() for t in everything(*a)])}, [f, i, b])
    compiled, _ = compile_and_look(everything)
    for got, expected in zip(compiled(f, i, b), everything(f, i, b), strict=True):
        compare("mixed", got, expected, got.dtype if got.dtype in TOLERANCE else torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_become_halves_first_as_in_eager(dtype: torch.dtype) -> None:
    x = (torch.randn(2000) * 2).to(dtype)
    x[:3] = torch.tensor([0.1, INF, -INF], dtype=dtype)  # 0.1 is no half: it must equal the rounded number
    whole, zero_dim = torch.randint(-5000, 5000, (2000,)), torch.tensor(0.1, dtype=torch.float64)

    def everything(x: torch.Tensor, whole: torch.Tensor, zero_dim: torch.Tensor) -> Any:
        return (
            x == 0.1, x < 0.1, x >= 0.1, x == zero_dim, x > zero_dim, x + 0.1, x - 0.1, x * 0.1, x / 0.1,
            torch.fmod(x, 0.1), torch.remainder(x, 0.1), x + 1e10, x == 1e10, x + whole, x * whole, x > whole,
            x + zero_dim, x * zero_dim,
        )  # fmt: skip

    compiled, look = compile_and_look(everything)
    args = (x, whole, zero_dim)
    for number, (got, expected) in enumerate(zip(compiled(*args), everything(*args), strict=True)):
        torch.testing.assert_close(
            got, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=number: f"{n}: {m}"
        )
    assert not look.fallbacks


def test_numbers_that_do_not_fit_wrap_as_in_eager() -> None:
    small, byte = torch.tensor([-128, 0, 44, 127], dtype=torch.int8), torch.tensor([0, 31, 255]).byte()

    def everything(small: torch.Tensor, byte: torch.Tensor) -> Any:
        return small < 300, byte > -3, byte.clamp(min=-3), byte + 300, small == 300

    compiled, _ = compile_and_look(everything)
    for got, expected in zip(compiled(small, byte), everything(small, byte), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize(
    "clamp",
    [
        lambda x: x.clamp(max=-3),
        lambda x: x.clamp(min=-3, max=300),
        lambda x: x.clamp(min=300),
        lambda x: x.char().clamp(max=300),
        lambda x: x.char().clamp(min=-129, max=128),
    ],
    ids=["max=-3", "min=-3, max=300", "min=300", "int8, max=300", "int8, min=-129, max=128"],
)
def test_limits_that_do_not_fit_do_what_this_torch_does(
    clamp: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """They wrap, saturate or are refused, depending on torch and on the limit."""
    byte = torch.tensor([0, 31, 255]).byte()
    compiled, _ = compile_and_look(clamp)
    try:
        expected = clamp(byte)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            compiled(byte)
    else:
        assert torch.equal(compiled(byte), expected)


def test_any_number_is_a_boolean() -> None:
    def everything(x: torch.Tensor) -> Any:
        return (
            torch.full((3,), 5, dtype=torch.bool), torch.full((3,), 0.1, dtype=torch.bool), x + True,
            torch.full_like(x, 0), torch.full((2,), NAN, dtype=torch.bool), x.new_full((2,), 256),
            x.clone().fill_(-3),
        )  # fmt: skip

    compiled, look = compile_and_look(everything)
    x = torch.tensor([True, False])
    for got, expected in zip(compiled(x), everything(x), strict=True):
        assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))  # their bytes: 0 or 1
    assert not look.fallbacks


def test_creation() -> None:
    def everything(x: torch.Tensor) -> Any:
        return (
            torch.arange(5), torch.arange(2, 20, 3), torch.arange(10, 0, -2), torch.full((2, 3), 7.0),
            torch.zeros_like(x), torch.ones(3, dtype=torch.int64), x.new_full((2,), 3), torch.zeros(()),
            torch.cat([x, x + 1]), torch.cat([x, x * 2], 1), torch.stack([x, x], 1), x.clone(),
            torch.arange(6, dtype=torch.float32) * 0.5,
        )  # fmt: skip

    compiled, look = compile_and_look(everything)
    x = torch.randn(3, 4)
    for number, (got, expected) in enumerate(zip(compiled(x), everything(x), strict=True)):
        compare(str(number), got, expected, got.dtype)
    assert not look.fallbacks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_what_is_no_byte_wraps_on_any_machine(dtype: torch.dtype) -> None:
    compiled, _ = compile_and_look(lambda x: x.to(torch.uint8))
    given = torch.tensor([-5.6, 300.0, -1.0, 256.0, 2.0**33, 7.0] * 7, dtype=dtype)
    assert compiled(given).tolist() == [251, 44, 255, 0, 0, 7] * 7


def test_ranges_of_fractions_are_atens() -> None:
    def everything() -> Any:
        return torch.arange(0.5, 5, 1.5, dtype=torch.int64), torch.arange(0, 1, 0.25), torch.arange(1.5, 4)

    compiled, look = compile_and_look(everything)
    for got, expected in zip(compiled(), everything(), strict=True):
        assert torch.equal(got, expected)
    assert {f.target for f in look.fallbacks} == {"aten.arange.start_step"}


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
