"""Programs that torch.compile gets wrong though each kernel is right: by class, three or more of each.

Wrong layouts and values that are not finite, which Inductor alone gets wrong, are in `wrong_launches`.

Those without a plant are wrong with stock torch 2.13; a plant is a mistake put into one step of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

Arguments = Callable[[], tuple[Any, ...]]
Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class WrongFunction:
    kind: str
    fn: Callable[..., Any]
    arguments: Arguments
    wrong: str  # what is found wrong
    backend: str = "aot_eager"  # with which it fails already
    step: str = ""  # that is named, with any backend with which it fails
    line: str = ""  # of the user's code that is named: this text is in it; empty: where the function begins
    by_inductor: str = "wrong-stage"  # the verdict when Inductor compiles it; empty: then it is right
    plant: Plant = nullcontext
    differentiates: bool = False

    def __str__(self) -> str:
        return f"{self.kind}-{self.fn.__name__}"

    def is_wrong(self) -> bool:
        """Whether this version of torch, without kernelscope, gets it wrong; what is planted always is."""
        if self.plant is not nullcontext or self.differentiates:
            return True
        torch._dynamo.reset()
        expected = tree_leaves(self.fn(*self.arguments()))
        made = tree_leaves(torch.compile(self.fn, backend=self.backend)(*self.arguments()))
        return len(made) != len(expected) or any(map(_differ, made, expected))


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if (one.shape, one.dtype, one.stride()) != (other.shape, other.dtype, other.stride()):
            return True
        return not torch.allclose(one, other, equal_nan=True)
    return bool(one != other)


def pixels(*shape: int) -> torch.Tensor:
    return torch.randint(0, 255, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


# -- writes through views that do not cover their base ---------------------------------------------------


def doubles_every_fifth_column(x: torch.Tensor) -> torch.Tensor:
    windows = x.unfold(1, 1, 5)
    windows.add_(windows)
    return x


def clears_pieces(x: torch.Tensor) -> torch.Tensor:
    made = x * 2
    made.unfold(2, 2, 4).zero_()
    return made


def scales_every_third_row(x: torch.Tensor) -> torch.Tensor:
    x.unfold(0, 1, 3).mul_(3)
    return x.sum(0)


def reads_a_view_that_overlaps(x: torch.Tensor) -> torch.Tensor:
    first, second = x[:, :4], x[:, 2:]
    first.unfold(1, 1, 3).mul_(2)
    return second + 1


def writes_to_two_views_that_overlap(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    made = x * 2
    first, second = made.unfold(0, 1, 3), made[1:5]
    second.add_(1)
    first.mul_(3)
    return made, second


def clears_a_view_of_an_overlapping_view(x: torch.Tensor) -> torch.Tensor:
    first, second = x[1:], x[:-1]
    first[1:].unfold(0, 1, 2).zero_()
    return second * 2


# -- strides after a write -------------------------------------------------------------------------------


def reads_by_stride_after_adding(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return torch.as_strided_copy(x, (3,), (2,))


def sums_by_stride_after_negating(x: torch.Tensor) -> torch.Tensor:
    x.neg_()
    return torch.as_strided(x, (3,), (2,)).sum()


def reads_by_stride_after_scaling(x: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5)
    return torch.as_strided_copy(x, (2, 2), (3, 2)) + 1


# -- decompositions that differ from eager ---------------------------------------------------------------


def enlarges_pixels(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=1.7, mode="bilinear")


def enlarges_pixels_smoothly(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=(7, 5), mode="bicubic")


def enlarges_pixels_to_the_corners(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True)


def ignores_what_it_adds(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.addmm(c, a, b, beta=0)


def leaks(x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(x, 0.1).sum(0)


@contextmanager
def wrong_leak() -> Iterator[None]:
    from torch._decomp import decomposition_table
    from torch._inductor import decomposition

    def leaky_relu(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
        return torch.where(x > 0, x, x * negative_slope * 1.01)

    wrong = {torch.ops.aten.leaky_relu.default: leaky_relu}
    with mock.patch.dict(decomposition.decompositions, wrong), mock.patch.dict(decomposition_table, wrong):
        decomposition.fast_random_decomps.cache_clear()
        yield
    decomposition.fast_random_decomps.cache_clear()


# -- Dynamo ----------------------------------------------------------------------------------------------


def makes_a_tensor_of_a_size(x: torch.Tensor) -> Any:
    return torch.Tensor(x.size()).shape, x + 1


def makes_a_typed_tensor_of_a_size(x: torch.Tensor) -> Any:
    return torch.FloatTensor(x.size()).shape, x * 2


def changes_a_shape_in_place() -> Any:
    x = torch.arange(4.0)
    y = x.as_strided_((2, 2), (2, 1))
    return y + 1, x.size()


def multiplies_by_a_length(x: torch.Tensor) -> torch.Tensor:
    return x * len([1, 2, 3]) + 1


@contextmanager
def wrong_length() -> Iterator[None]:
    """Dynamo believes that everything has four elements."""
    from torch._dynamo.variables import builtin, constant

    def call_len(self: Any, tx: Any, *args: Any) -> Any:
        return constant.ConstantVariable.create(4)

    handlers = builtin.BuiltinVariable.call_function_handler_cache  # Dynamo keeps them
    handlers.clear()
    with mock.patch.object(builtin.BuiltinVariable, "call_len", call_len):
        yield
    handlers.clear()


# -- AOTAutograd's wrappers ------------------------------------------------------------------------------


def returns_views_of_its_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.view(-1), x + 1


def returns_a_slice_of_its_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[1:], x.sum()


def returns_its_input_transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t(), x * 2  # type: ignore[return-value]


@contextmanager
def forgotten_aliases() -> Iterator[None]:
    """Results that should be views of inputs are copies."""
    from torch._functorch._aot_autograd import runtime_wrappers

    original = runtime_wrappers.gen_alias_from_base

    def gen_alias_from_base(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs).clone()

    with mock.patch.object(runtime_wrappers, "gen_alias_from_base", gen_alias_from_base):
        yield


def squares(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(0)


def products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


def powers(x: torch.Tensor) -> torch.Tensor:
    return (x.abs() + 1).pow(1.5) * 2


def wrong_gradients(module: Any, inputs: Any) -> Any:
    """A backend whose forward is right, and whose gradients are one percent too large."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def forward(graph: Any, given: Any) -> Any:
        return make_boxed_func(graph.forward)

    def backward(graph: Any, given: Any) -> Any:
        def run(*args: Any) -> Any:
            return [g * 1.01 if isinstance(g, torch.Tensor) else g for g in graph.forward(*args)]

        return make_boxed_func(run)

    return aot_autograd(fw_compiler=forward, bw_compiler=backward)(module, inputs)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def leaf(*shape: int) -> torch.Tensor:
    return numbers(*shape).requires_grad_()


GAPS, OVERLAPS = "gapped-views", "overlapping-views"
STRIDES, OPERATORS = "strides-after-a-write", "operators"
DYNAMO, ALIASES, GRADIENTS = "Dynamo", "aliases", "gradients"


def _functionalized(kind: str, fn: Callable[..., Any], arguments: Arguments, line: str) -> WrongFunction:
    return WrongFunction(kind, fn, arguments, "result 0", step="functionalization", line=line)


def _enlarged(fn: Callable[..., Any], mode: str) -> WrongFunction:
    step = f"decomposition of aten.upsample_{mode}2d.default"
    return WrongFunction(
        OPERATORS, fn, lambda: (pixels(1, 3, 5, 5),), "result 0", step=step, line="F.interpolate"
    )


def _of_dynamo(fn: Callable[..., Any], arguments: Arguments, plant: Plant = nullcontext) -> WrongFunction:
    return WrongFunction(
        DYNAMO, fn, arguments, "the result", "eager", DYNAMO, by_inductor="wrong-function", plant=plant
    )


def _unshared(fn: Callable[..., Any], *shape: int) -> WrongFunction:
    return WrongFunction(
        ALIASES, fn, lambda: (numbers(*shape),), "result 0", step="AOTAutograd",
        by_inductor="wrong-function", plant=forgotten_aliases,
    )  # fmt: skip


def _backward(fn: Callable[..., Any], arguments: Arguments) -> WrongFunction:
    return WrongFunction(
        GRADIENTS, fn, arguments, "the gradient of x", "wrong_gradients", by_inductor="", differentiates=True
    )


WRONG_FUNCTIONS = [
    _functionalized(
        GAPS, doubles_every_fifth_column, lambda: (torch.arange(24).view(4, 6),), "windows.add_(windows)"
    ),
    _functionalized(GAPS, clears_pieces, lambda: (numbers(2, 3, 8),), "made.unfold(2, 2, 4).zero_()"),
    _functionalized(GAPS, scales_every_third_row, lambda: (numbers(8, 3),), "x.unfold(0, 1, 3).mul_(3)"),
    _functionalized(OVERLAPS, reads_a_view_that_overlaps, lambda: (numbers(3, 8),), ".mul_(2)"),
    _functionalized(OVERLAPS, writes_to_two_views_that_overlap, lambda: (numbers(9),), "first.mul_(3)"),
    _functionalized(OVERLAPS, clears_a_view_of_an_overlapping_view, lambda: (numbers(9),), ".zero_()"),
    _functionalized(
        STRIDES, reads_by_stride_after_adding, lambda: (torch.arange(10)[::2],), "torch.as_strided_copy(x"
    ),
    _functionalized(
        STRIDES, sums_by_stride_after_negating, lambda: (numbers(10)[::2],), "torch.as_strided(x"
    ),
    _functionalized(
        STRIDES, reads_by_stride_after_scaling, lambda: (numbers(16)[::2],), "torch.as_strided_copy(x"
    ),
    _enlarged(enlarges_pixels, "bilinear"),
    _enlarged(enlarges_pixels_smoothly, "bicubic"),
    _enlarged(enlarges_pixels_to_the_corners, "bilinear"),
    WrongFunction(
        OPERATORS, ignores_what_it_adds,
        lambda: (torch.full((4,), float("nan")), numbers(1, 4), numbers(4, 4)),
        "result 0", "aot_eager_decomp_partition", "decomposition of aten.addmm.default", "torch.addmm",
        by_inductor="",  # folds the product with beta to zeros
    ),
    WrongFunction(
        OPERATORS, leaks, lambda: (numbers(64, 8),), "result 0", "aot_eager_decomp_partition",
        "decomposition of aten.leaky_relu.default", "F.leaky_relu", plant=wrong_leak,
    ),
    _of_dynamo(makes_a_tensor_of_a_size, lambda: (numbers(1, 4),)),
    _of_dynamo(makes_a_typed_tensor_of_a_size, lambda: (numbers(2, 3),)),
    _of_dynamo(changes_a_shape_in_place, lambda: ()),
    _of_dynamo(multiplies_by_a_length, lambda: (numbers(3),), wrong_length),
    _unshared(returns_views_of_its_input, 2, 3),
    _unshared(returns_a_slice_of_its_input, 4, 3),
    _unshared(returns_its_input_transposed, 2, 3),
    _backward(squares, lambda: (leaf(3, 4),)),
    _backward(products, lambda: (leaf(3, 4), leaf(4, 2))),
    _backward(powers, lambda: (leaf(3, 4),)),
]  # fmt: skip
