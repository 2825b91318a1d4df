"""Operators that are not torch's own run on copies: they may write where they do not declare it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch.library import Library

import kernelscope
from kernelscope.shadowing.reference.custom_operators import OnlyDeclaredWrites, copied_as_it_lies, is_custom
from kernelscope.shadowing.reference.written_arguments import write_back
from kernelscope.shadowing.regions.modes.operator_modes import Notes, WritesToInput
from kernelscope.shadowing.regions.modes.wide_mode import Wide


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


@pytest.fixture(scope="module")
def listing() -> Iterator[torch._ops.OpOverload]:
    """Returns the double of the first of a list, and doubles the last, which it does not declare."""
    library = Library("kernelscope_listed", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("double(Tensor?[] xs) -> Tensor")

    def double(xs: list[torch.Tensor | None]) -> torch.Tensor:
        assert xs[0] is not None
        assert xs[-1] is not None
        made = xs[0] * 2
        xs[-1].mul_(2)
        return made

    library.impl("double", double, "CPU")
    library.impl("double", lambda xs: torch.empty_like(xs[0]), "Meta")
    yield torch.ops.kernelscope_listed.double.default
    library._destroy()  # type: ignore[no-untyped-call]


def test_an_undeclared_write_to_a_value_that_has_no_node_of_its_own(listing: torch._ops.OpOverload) -> None:
    """Two buffers of one kernel, of the same shape: which holds which value is not known."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = y.cos()
        return listing([x.sin(), None, b]) + 1, b * 2

    result = kernelscope.check_correctness(fn, torch.randn(5), torch.randn(5))
    found = [(c.verdict, c.kernel_name, c.argument) for c in result.culprits]
    assert found == [("foreign-write", "kernelscope_listed.double.default", "xs[2]")], str(result)
    assert any("result 1 of fn differs" in note for note in result.notes), str(result)


def test_an_undeclared_write_to_an_input_does_not_accuse_a_step(listing: torch._ops.OpOverload) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return listing([x.sin(), y]) + 1

    result = kernelscope.check_correctness(fn, torch.randn(5), torch.randn(5))
    assert [(c.verdict, c.argument) for c in result.culprits] == [("foreign-write", "xs[1]")], str(result)
    assert not result.failures, result.details()


def test_an_undeclared_write_also_happens_in_float64(clearing: torch._ops.OpOverload) -> None:
    """Otherwise what compiled code makes without it would be as float64 has it."""
    x, mode = torch.arange(3.0, dtype=torch.float64), Wide()
    mode.learn(x, torch.float32)
    with mode:
        clearing(x)
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("declares", [False, True])
def test_only_what_is_declared_is_written(declares: bool) -> None:
    library = Library("kernelscope_declared", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(f"add(Tensor{'(a!)' if declares else ''}[] xs, Tensor y) -> Tensor")

    def add(xs: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
        xs[0].add_(y)
        return y * 2

    library.impl("add", add, "CPU")
    x, y = torch.zeros(3), torch.ones(3)
    try:
        with OnlyDeclaredWrites(write_back):
            made = torch.ops.kernelscope_declared.add([x], y)
    finally:
        library._destroy()  # type: ignore[no-untyped-call]
    assert x.tolist() == [float(declares)] * 3
    assert made.tolist() == [2, 2, 2]


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
