"""More faults: in branches and loops, one of several results, state that is written in place, sizes."""

# ruff: noqa: E501  # one fault, one line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .planting import Fault, in_call, in_kernel

X = torch.randn(6, 10, generator=torch.Generator().manual_seed(4))
Y = torch.randn(6, 10, generator=torch.Generator().manual_seed(5))
IMAGE = torch.randn(1, 2, 7, 7, generator=torch.Generator().manual_seed(6))
FILTERS = torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(7))
FAR = torch.cat([X, X + 200])  # exp() of it overflows
BIG = torch.arange(5) * (1 << 33)
# In the loops that keep a momentum: what is read second is read in place of the first, too.
MOMENTUM = r"(= )in_ptr\d(\[[^;]*;\s*auto tmp\d = (in_ptr\d))(?=[^}]*0\.9\))"
# The wrapper's last line, whatever the names of its buffers are.
RETURN = r"return \((\w+), (\w+), \)"
TRANSPOSE = r"(return \(reinterpret_tensor\(\w+, \(6, 6\), \()1, 6"


def calling(fn: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], None]:
    def program() -> None:
        torch.compile(fn, **options)(*(a.clone() for a in args))

    return program


def differentiating(fn: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def program() -> None:
        leaves = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        torch.compile(fn)(*leaves).square().sum().backward()

    return program


def branching(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    chosen = torch.cond(x.sum() > 0, lambda a, b: a.exp() * 3.25 + b, lambda a, b: (a - b).sin(), (x, y))
    return chosen @ y.t()


def looping(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.while_loop import while_loop

    start = torch.zeros((), dtype=torch.int64), x
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin() * 1.75), start)[1].cos()


def training_by_momentum() -> None:
    weights = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]
    step = torch.compile(torch.optim.SGD(weights, lr=0.1, momentum=0.9).step)
    for _ in range(2):
        for w in weights:
            w.grad = torch.randn_like(w)
        step()


def of_several_sizes() -> None:
    compiled = torch.compile(lambda x: (x.sin() * 2).sum(1), dynamic=True)
    for size in (6, 9):
        compiled(torch.randn(size, 10))


def normalising() -> None:
    torch.compile(nn.BatchNorm1d(10))(X)


def padded(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.embedding(i, table, padding_idx=1)


OTHERS = [
    # -- control flow
    Fault("the end of a loop", "control flow", calling(looping, X), in_kernel(r"tmp0 < tmp1", "tmp0 <= tmp1"), "lt"),
    Fault("a branch", "control flow", calling(branching, X.abs(), Y), in_kernel(r"3\.25", "3.26"), "add"),
    Fault("the other branch", "control flow", calling(branching, -X.abs(), Y), in_kernel(r"tmp0 - tmp1", "tmp1 - tmp0"), "sin"),
    Fault("the body of a loop", "control flow", calling(looping, X), in_kernel(r"1\.75", "1.7501"), "mul"),
    # -- one of several results
    Fault("the variance, not the mean", "wrong constant", calling(lambda x: torch.var_mean(x, 1), X), in_kernel(r"static_cast<float>\(9\.0\)", "static_cast<float>(10.0)"), "=in_out_ptr1"),
    Fault("the index, not the maximum", "off by one", calling(lambda x: x.max(1), X), in_kernel(r"argmax_combine\(tmp_acc1, tmp0, x1\)", "argmax_combine(tmp_acc1, tmp0, x1 + (x1 > 4))"), "=out_ptr1"),
    # -- state
    Fault("one tensor for another", "swapped inputs", training_by_momentum, in_kernel(MOMENTUM, r"\1\3\2"), "=out_ptr2", phase=""),
    Fault("running variance", "wrong constant", normalising, in_kernel(r"static_cast<float>\(0\.9\)", "static_cast<float>(0.91)"), "=out_ptr5"),
    # -- what the wrapper hands over
    Fault("two results swapped", "wrong result", calling(lambda x: (x.sin(), x.cos()), X), in_call(RETURN, r"return (\2, \1, )"), "sin", kernel="return", phase="", verdict="wrong-result", finest="backend inductor"),
    Fault("one result twice", "wrong result", calling(lambda x: (x.sin(), x.cos()), X), in_call(RETURN, r"return (\1, \1, )"), "cos", kernel="return", phase="", verdict="wrong-result", finest="backend inductor"),
    Fault("strides of a transpose", "wrong result", calling(lambda x, y: (x @ y).t(), X[:, :6].contiguous(), Y[:, :6].contiguous()), in_call(TRANSPOSE, r"\g<1>6, 1"), "permute", kernel="return", phase="", verdict="wrong-result", finest="lowering permute (graph 0)"),
    # -- sizes that are known only at run time
    Fault("a stride for another", "dynamic shapes", of_several_sizes, in_kernel(r"ks1\*x0", "ks0*x0"), "sum_1"),
    Fault("the last column", "dynamic shapes", of_several_sizes, in_kernel(r"x1<static_cast<int64_t>\(ks1\)", "x1<static_cast<int64_t>(ks1 - 1)"), "sum_1"),
    Fault("the size of the first call", "dynamic shapes", of_several_sizes, in_call(r"(cpp_fused_mul_sin_sum_0\(arg2_1, buf0,) s\d+", r"\1 6"), "sum_1", kernel="mul_sin_sum"),
    # -- library and gathering gradients
    Fault("gradient of filters", "wrong gradient", differentiating(lambda x, w: F.conv2d(x, w, stride=2), IMAGE, FILTERS), in_call(r"convolution_backward\.default\(buf0, primals_1,", "convolution_backward.default(buf0, primals_1.flip(2),"), "=result1", kernel="convolution_backward", phase="backward"),
    Fault("gradient of padding", "wrong gradient", differentiating(padded, torch.randn(5, 4), torch.tensor([0, 1, 3, 1])), in_kernel(r"!= (tmp\d+)", r"!= int64_t(\1 + 4)"), "=out_ptr0", phase="backward"),
    Fault("a sum from the other end", "swapped inputs", calling(lambda x: x.sin().cumsum(1), X), in_call(r"cumsum\.default\(buf0,", "cumsum.default(buf0.flip(1),"), "cumsum", kernel="cumsum"),
    # -- random numbers
    Fault("each number twice", "random numbers", differentiating(lambda x: F.dropout(x.sin(), 0.25), X), in_kernel(r"normalized_rand_cpu\(tmp0, tmp2\)", "normalized_rand_cpu(tmp0, tmp2 / 2)"), "gt"),
    Fault("scale of dropout", "random numbers", differentiating(lambda x: F.dropout(x.sin(), 0.25), X), in_kernel(r"1\.3333333333333333", "1.25", kernel="backward"), "=out_ptr0", phase="backward"),
    Fault("one seed for two draws", "random numbers", calling(lambda x: torch.rand_like(x) + 10 * torch.rand_like(x), X), in_kernel(r"in_ptr0\[static_cast<int64_t>\(1L\)\]", "in_ptr0[static_cast<int64_t>(0L)]"), "add"),
    # -- overflow
    Fault("integers of 32 bits", "precision loss", calling(lambda i: i * 3 + 1, BIG), in_kernel(r"int64_t\(tmp0 \* tmp1\)", "int64_t(int32_t(tmp0 * tmp1))"), "add"),
    Fault("softmax of large numbers", "rare NaN", calling(lambda x: x.softmax(1), FAR), in_kernel(r"float\(tmp0 - tmp1\)", "(tmp1 > 100 ? tmp0 : float(tmp0 - tmp1))"), "=out_ptr2"),
]  # fmt: skip
