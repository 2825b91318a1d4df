"""Operators that are not torch's own run on copies: they may write where they do not declare it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch.library import Library

import kernelscope
from kernelscope.shadowing.reference.custom_operators import copied_as_it_lies, is_custom
from kernelscope.shadowing.regions.operator_modes import Notes, WritesToInput


@pytest.fixture(scope="module")
def clearing() -> Iterator[torch._ops.OpOverload]:
    """Returns the double of what it is given, and adds one to that, which it does not declare."""
    library = Library("kernelscope_undeclared", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("double(Tensor x) -> Tensor")

    def double(x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        x.add_(1)
        return made

    library.impl("double", double, "CPU")
    library.impl("double", torch.empty_like, "Meta")
    yield torch.ops.kernelscope_undeclared.double.default
    library._destroy()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_program_gets_the_same_with_an_undeclared_write(
    clearing: torch._ops.OpOverload, backend: str
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return clearing(y) + y + clearing(x)

    def run() -> list[torch.Tensor]:
        torch.compiler.reset()
        x = torch.arange(8.0)
        return [torch.compile(fn, backend=backend)(x), x]

    bare = run()
    with kernelscope.shadow():
        shadowed = run()
    assert all(map(torch.equal, shadowed, bare))


@pytest.mark.parametrize(
    ("before", "after", "is_refused"), [(float("nan"), float("nan"), False), (0.0, -0.0, True)]
)
def test_a_write_is_noticed_by_the_bits(before: float, after: float, is_refused: bool) -> None:
    library = Library("kernelscope_bits", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("fill(Tensor x) -> Tensor")
    library.impl("fill", lambda x: x.fill_(after) * 2, "CPU")
    x, mode = torch.full((3,), before), Notes()
    mode.protected = frozenset([1])  # memory of another tensor
    try:
        with pytest.raises(WritesToInput) if is_refused else nullcontext(), mode:
            torch.ops.kernelscope_bits.fill(x)
    finally:
        library._destroy()  # type: ignore[no-untyped-call]
    assert mode.is_refused is is_refused


def test_which_operators_are_custom(clearing: torch._ops.OpOverload) -> None:
    assert is_custom(clearing)
    assert not is_custom(torch.ops.aten.add.Tensor)
    assert not is_custom(torch.ops.higher_order.cond)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12.0).view(3, 4)[:, ::2],
        torch.arange(3.0).expand(2, 3),
        torch.arange(6.0).as_strided((2, 3), (2, 1), 1),
        torch.tensor(3.0),
        torch.empty(0, 3),
    ],
)
def test_a_copy_lies_as_the_tensor_does(tensor: torch.Tensor) -> None:
    copy = copied_as_it_lies(tensor)
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert copy.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr() or not tensor.numel()
