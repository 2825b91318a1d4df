"""The faults, by family. Programs are as small as they can be: each compiles with an empty cache."""

# ruff: noqa: E501  # one fault, one line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .planting import Fault, in_call, in_kernel, replacing
from .wrong_passes import PASSES

X = torch.randn(6, 10, generator=torch.Generator().manual_seed(1))
Y = torch.randn(6, 10, generator=torch.Generator().manual_seed(2))
SQUARE = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))


def calling(fn: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def program() -> None:
        torch.compile(fn)(*(a.clone() for a in args))

    return program


def differentiating(fn: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def program() -> None:
        leaves = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        result = torch.compile(fn)(*leaves)
        result.square().sum().backward()

    return program


def causal(x: torch.Tensor) -> torch.Tensor:
    mask = torch.arange(x.shape[0])[:, None] >= torch.arange(x.shape[1])
    return x.masked_fill(~mask, -1e9).exp()


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],))


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).relu()


def add_at(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros(4, x.shape[1]).index_add(0, i, x)


def gathered(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.embedding(i, table)


SAME_ROWS = torch.tensor([0, 1, 1, 2, 1, 3])
STORE = r"(out_ptr0\[[^;]*\] = )(\w+);"
SLIP = r"static_cast<int64_t>\("


def mix(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What an extern kernel does, computed with 8 bits."""

    def narrow(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(fn(a.bfloat16(), b.bfloat16()))

    return narrow


def extern(name: str, wrong: Callable[..., Any]) -> Any:
    from torch._inductor.select_algorithm import extern_kernels

    return replacing(extern_kernels, name, wrong)


def swap(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b, **kwargs: fn(b, a, **kwargs)


def half_done(fn: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        fn(a[:-1], b, out=out[:-1])
        return out

    return wrong


@torch.library.custom_op("kernelscope_faults::meddle", mutates_args=())
def meddle(x: torch.Tensor) -> torch.Tensor:
    """A user's operator that declares to write to nothing, and does."""
    x[0] = 5
    return x + 1


@meddle.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("kernelscope_faults::add_into", mutates_args=("x",))
def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def adding_into(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    add_into(x, y.exp())
    return x * 2


def adding_to_a_part(x: torch.Tensor) -> torch.Tensor:
    x[:, 1:9].add_(1.25)
    return x.sum(0)


def meddling() -> None:
    torch.compile(lambda x: meddle(x.sin()) * 2)(SQUARE)


FAULTS = [
    # -- wrong operator
    Fault("sine for cosine", "wrong operator", calling(lambda x: x.cos() + 1, X), in_kernel(r"std::cos\(", "std::sin("), "add"),
    Fault("minus for plus", "wrong operator", calling(lambda x, y: (x + y) * 2, X, Y), in_kernel(r"tmp0 \+ tmp1", "tmp0 - tmp1"), "mul"),
    Fault("minimum for maximum", "wrong operator", calling(lambda x: x.amax(1), X), in_kernel("max_propagate_nan", "min_propagate_nan"), "amax"),
    Fault("vectorised", "wrong operator", calling(lambda x: x.exp() * 3, X), in_kernel(r"\.exp\w*\(\)|std::exp\(tmp0\)", ".sin()"), "mul", config={"cpp.simdlen": None}),
    Fault("greater for less", "wrong operator", calling(lambda x, y: (x < y) & (x > 0), X, Y), in_kernel(r"tmp0 < tmp1", "tmp0 > tmp1"), "bitwise_and"),
    # -- wrong constant
    Fault("gelu", "wrong constant", calling(F.gelu, X), in_kernel(r"0\.7071067811865476", "0.7171067811865476"), "mul_2"),
    Fault("one percent in bfloat16", "wrong constant", calling(lambda x: x.sigmoid() * 0.5, torch.randn(64, 64).bfloat16()), in_kernel(r"static_cast<float>\(0\.5\)", "static_cast<float>(0.505)"), "mul"),
    Fault("epsilon of layer norm", "wrong constant", calling(layer_norm, X), in_kernel(r"1e-05", "1e-02"), "mul"),
    Fault("last digit but three", "wrong constant", calling(lambda x: x * 3.25, X), in_kernel(r"3\.25", "3.2505"), "mul"),
    Fault("count of a mean", "wrong constant", calling(lambda x: x.mean(1), X), in_kernel(r"10\.0", "9.0"), "mean"),
    # -- off by one
    Fault("slice", "off by one", calling(lambda x: x[:, 1:9] * 2, X), in_kernel(rf"({SLIP})1L \+ x1", r"\g<1>x1"), "mul"),
    Fault("flip", "off by one", calling(lambda x: x.flip(1) + 1, X), in_kernel(r"9L \+", "8L + (x1 == 9L) +"), "add"),
    Fault("shifted rows", "off by one", calling(lambda x: x.roll(1, 0).sin(), X), in_kernel(r"x0 \+ 10L\*x1|x1 \+ 10L\*x0", "0*x1 + 10L*x0"), "sin"),
    Fault("gather", "off by one", calling(lambda x, i: x[i].exp(), X, torch.tensor([0, 3, 2])), in_kernel(r"(tmp\d+) \+ 6L|10L\*(tmp\w+)", r"10L*((\2 + 1) % 6)"), "exp"),
    # -- dropped tail or mask
    Fault("tail", "dropped tail", calling(lambda x: x.sin() + 1, torch.randn(103)), in_kernel(r"x0<static_cast<int64_t>\(103L\)", "x0<static_cast<int64_t>(96L)"), "add"),
    Fault("tail of a sum", "dropped tail", calling(lambda x: (x * x).sum(), torch.rand(1003)), in_kernel(r"<static_cast<int64_t>\(1003L\)", "<static_cast<int64_t>(1000L)"), "sum_1"),
    Fault("causal mask", "dropped tail", calling(causal, SQUARE), in_kernel(r"(tmp\d+) \? (tmp\d+) : (tmp\d+);", r"true ? \3 : \3;"), "exp"),
    Fault("padding", "dropped tail", calling(lambda x: F.pad(x, (0, 3)) + 1, X), in_kernel(r"x1<static_cast<int64_t>\(13L\)", "x1<static_cast<int64_t>(12L)"), "add"),
    # -- swapped inputs
    Fault("launch", "swapped inputs", calling(lambda x, y: x - 2 * y, X, Y), in_call(r"\(arg(\d)_1, arg(\d)_1, buf0\)", r"(arg\2_1, arg\1_1, buf0)"), "sub", kernel="cpp_fused_mul_sub_0"),
    Fault("extern", "swapped inputs", calling(lambda x, y: x @ y, SQUARE, SQUARE.sin()), extern("mm", swap), "mm", kernel="extern_kernels.mm"),
    Fault("branches", "swapped inputs", calling(lambda x, y: torch.where(x > 0, x, y), X, Y), in_kernel(r"(tmp\d+) \? (tmp\d+) : (tmp\d+);", r"\1 ? \3 : \2;"), "where"),
    # -- stale buffer
    Fault("an input for a buffer", "stale buffer", calling(lambda x, y: x.sin() @ y, SQUARE, SQUARE.cos()), in_call(r"extern_kernels\.mm\(buf0, arg1_1", "extern_kernels.mm(arg1_1, arg1_1"), "mm", kernel="extern_kernels.mm"),
    Fault("a buffer of the step before", "stale buffer", calling(lambda x, y: ((x @ y) @ y).sin() + x @ y.sin(), SQUARE, SQUARE.cos()), in_call(r"extern_kernels\.mm\(buf0, (\w+), out=buf1\)", r"extern_kernels.mm(\1, \1, out=buf1)"), "mm_1", kernel="extern_kernels.mm"),
    Fault("another saved value", "stale buffer", differentiating(lambda x, y: x.sin() * y, X, Y), in_call(r"cpp_fused_cos_mul_sin_0\(tangents_1, primals_1,", "cpp_fused_cos_mul_sin_0(tangents_1, primals_2,"), "=out_ptr0", kernel="cos_mul_sin", phase="backward"),
    # -- missing write
    Fault("one of two outputs", "missing write", calling(lambda x: (x.sin(), x.cos()), X), in_kernel(r"out_ptr1\[[^;]*;", ";"), "cos"),
    Fault("every seventh element", "missing write", calling(lambda x: x.exp() * 2, X), in_kernel(STORE, r"if (x0 % 7L) \1\2;"), "mul"),
    Fault("extern leaves a row", "missing write", calling(lambda x, y: x @ y, SQUARE, SQUARE), extern("mm", half_done), "mm", kernel="extern_kernels.mm"),
    # -- uninitialised read
    Fault("accumulator", "uninitialised read", calling(lambda x: x.sum(1), X), in_kernel(r"tmp_acc0 = 0;", "tmp_acc0 = out_ptr0[x0];"), "sum_1"),
    Fault("argument", "uninitialised read", calling(lambda x: x.sum(0), X), in_call(r"cpp_fused_sum_0\(arg0_1", "cpp_fused_sum_0(empty_strided_cpu((6, 10), (10, 1), torch.float32)"), "=in_ptr0", kernel="cpp_fused_sum", verdict="uninitialised-read"),
    Fault("a factor", "uninitialised read", calling(lambda x, y: x.sin() @ y, SQUARE, SQUARE.cos()), in_call(r"extern_kernels\.mm\(buf0,", "extern_kernels.mm(empty_strided_cpu((8, 8), (8, 1), torch.float32),"), "=self", kernel="mm", verdict="uninitialised-read"),
    # -- precision loss
    Fault("product rounded to 8 bits", "precision loss", calling(lambda x, y: x * y + 1, X, Y), in_kernel(r"tmp0 \* tmp1", "float(c10::BFloat16(tmp0 * tmp1))"), "add"),
    Fault("sum kept in 8 bits", "precision loss", calling(lambda x: x.sum(1), torch.rand(4, 300)), in_kernel(r"tmp_acc0 = tmp_acc0 \+ tmp0;", "tmp_acc0 = float(c10::BFloat16(tmp_acc0 + tmp0));"), "sum_1"),
    Fault("matrix product in 8 bits", "precision loss", calling(lambda x, y: x @ y, SQUARE, SQUARE), extern("mm", mix), "mm", kernel="extern_kernels.mm"),
    Fault("half for float", "precision loss", calling(lambda x: x.exp().log1p(), X), in_kernel(r"std::exp\(tmp0\)", "float(c10::Half(std::exp(tmp0)))"), "log1p"),
    # -- racy accumulation
    Fault("lost updates", "racy accumulation", calling(add_at, X, SAME_ROWS), in_kernel(r"atomic_add\(&(out_ptr\d\[[^;]*\]), ([^;]+)\);|(out_ptr\d\[[^;]*\]) \+= ([^;]*);", r"\1\3 = \2\4;"), "index_put"),
    Fault("one in four is lost", "racy accumulation", calling(lambda x: x.sum(0), torch.rand(64, 3)), in_kernel(r"tmp_acc0 = tmp_acc0 \+ tmp0;", "if (x1 % 4L) tmp_acc0 = tmp_acc0 + tmp0;"), "sum_1"),
    Fault("gradients of one row", "racy accumulation", differentiating(gathered, torch.randn(5, 4), torch.tensor([0, 1, 3, 1])), in_kernel(r"atomic_add\(&(out_ptr0\[[^;]*\]), ([^;]+)\);", r"\1 = \2;"), "=out_ptr0", phase="backward"),
    # -- wrong broadcast
    Fault("bias by row", "wrong broadcast", calling(lambda x, b: x.exp() + b, SQUARE, SQUARE[0]), in_kernel(r"in_ptr1\[static_cast<int64_t>\(x1\)\]", "in_ptr1[static_cast<int64_t>(x0)]"), "add"),
    Fault("stride of a transpose", "wrong broadcast", calling(lambda x: x.t().contiguous() * 2, SQUARE), in_kernel(r"x0 \+ 8L\*x1|x1 \+ 8L\*x0", "x0 + 7L*x1"), "mul"),
    Fault("scale of the first row", "wrong broadcast", calling(lambda x, s: x * s, X, X[:, :1]), in_kernel(r"in_ptr1\[static_cast<int64_t>\(x0\)\]", "in_ptr1[static_cast<int64_t>(0L)]"), "mul"),
    # -- wrong reduction identity
    Fault("maximum of negatives", "wrong identity", calling(lambda x: x.amax(1), -X.abs() - 1), in_kernel(r"-std::numeric_limits<float>::infinity\(\)", "0"), "amax"),
    Fault("sum from one", "wrong identity", calling(lambda x: x.sum(1), X), in_kernel(r"tmp_acc0 = 0;", "tmp_acc0 = 1;"), "sum_1"),
    Fault("any from true", "wrong identity", calling(lambda x: (x > 9).any(1), X), in_kernel(r"tmp_acc0 = 0;", "tmp_acc0 = 1;"), "any_1"),
    # -- NaN on a rare value
    Fault("large arguments", "rare NaN", calling(lambda x: x.sin() * 2, torch.cat([torch.randn(500), torch.tensor([9.5])])), in_kernel(r"std::sin\(tmp0\)", "(tmp0 > 9 ? NAN : std::sin(tmp0))"), "mul"),
    Fault("exactly zero", "rare NaN", calling(lambda x: x * 2 + 1, torch.cat([torch.randn(50), torch.zeros(1)])), in_kernel(r"tmp0 \* tmp\d|tmp0 \+ tmp0|tmp\d \* tmp0", "tmp0 * (2 * (tmp0 / tmp0))"), "add"),
    # -- wrong gradient only
    Fault("tanh", "wrong gradient", differentiating(torch.tanh, X), in_kernel(r"static_cast<float>\(1\.0\)", "static_cast<float>(0.5)"), "mul_1", phase="backward"),
    Fault("exponential", "wrong gradient", differentiating(lambda x: (x * 3).exp(), X), in_kernel(r"3\.0", "2.9", kernel="cpp_fused_mul_0"), "mul_2", phase="backward"),
    Fault("weights of a product", "wrong gradient", differentiating(linear, SQUARE, SQUARE.cos()), in_call(r"extern_kernels\.mm\(permute, buf0", "extern_kernels.mm(buf0, permute"), "mm_1", kernel="extern_kernels.mm", phase="backward"),
    Fault("bias", "wrong gradient", differentiating(lambda x, b: (x + b).sin(), X, X[0]), in_kernel(r"10L \+ x0", "20L + x0", kernel="sum"), "sum_1", phase="backward"),
    # -- foreign write
    Fault("its own input", "foreign write", calling(lambda x: (x.sin() @ x).cos() + x, SQUARE), in_kernel(r"(out_ptr0\[[^;]*\] = \w+;)", r"\1 const_cast<float*>(in_ptr0)[3] = 7;", kernel="sin"), "=in_ptr0", verdict="foreign-write"),
    Fault("another's buffer", "foreign write", meddling, in_call(r"kernelscope_faults", "kernelscope_faults"), "=x", kernel="meddle", verdict="foreign-write"),
    Fault("a saved value", "foreign write", differentiating(lambda x, y: x.sin() * y, X, Y), in_kernel(r"(out_ptr1\[[^;]*\] = \w+;)", r"\1 const_cast<float*>(in_ptr1)[2] = 3;", kernel="cos_mul_sin"), "=in_ptr1", verdict="foreign-write", phase="backward"),
    # -- written in place
    Fault("part of an input", "written in place", calling(adding_to_a_part, X), in_kernel(r"1\.25", "1.5"), "arg0_1"),
    Fault("another row is read", "written in place", calling(adding_to_a_part, X), in_kernel(rf"(out_ptr\d\[{SLIP})10L \+ x0", r"\g<1>20L + x0"), "sum_1"),
    Fault("handed something else", "written in place", calling(adding_into, SQUARE, SQUARE.cos()), in_call(r"add_into\.default\((arg\d_1), buf0\)", r"add_into.default(\1, \1)"), "=x", kernel="add_into"),
    *PASSES,
]  # fmt: skip
