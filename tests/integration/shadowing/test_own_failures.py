"""A mistake of shadow's own never reaches the program, and is never exit status 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.probes.compilation import lowering
from kernelscope.probes.dynamo import compiled_regions
from kernelscope.probes.launch import Launch
from kernelscope.shadowing import session
from kernelscope.shadowing.checks.launch_check import LaunchCheck
from kernelscope.shadowing.regions import region_check
from kernelscope.shadowing.writes.memory_check import MemoryCheck

PLACES: dict[str, tuple[Any, str]] = {
    "before a launch": (LaunchCheck, "before"),
    "after a launch": (LaunchCheck, "after"),
    "in the check of memory": (MemoryCheck, "before"),
    "when a graph is called": (session, "read_function"),
    "when a graph is lowered": (lowering, "_lowered"),
    "when a function is compiled": (compiled_regions, "_traced"),
    "when a function is called": (region_check, "begun"),
}


def program() -> torch.Tensor:
    return torch.compile(lambda x: (x.sin() @ x).relu())(torch.linspace(0, 1, 16).reshape(4, 4))


@pytest.mark.parametrize("place", PLACES)
def test_it_does_not_reach_the_program(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a mistake")

    torch._dynamo.reset()
    bare = program()
    monkeypatch.setattr(*PLACES[place], fails)
    with kernelscope.shadow() as result:
        shadowed = program()
    assert torch.equal(bare, shadowed)
    assert result.status == 2
    assert result.failures
    assert "kernelscope itself failed" in result.problem
    assert "AssertionError: a mistake" in result.problem
    assert "test_own_failures.py" in result.failures[0].traceback
    if "launch" in place:
        assert result.counts.shares["launches"] == 0


@pytest.mark.parametrize("place", ["before", "after"])
def test_it_accuses_nobody(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch wrote in place while shadow failed is not a write that nobody declared."""
    follow, failed = getattr(LaunchCheck, place), 0

    def fails_at_a_write_in_place(*args: Any) -> Any:
        nonlocal failed
        launch = next(each for each in args if isinstance(each, Launch))
        if "add_one" in launch.site.kernel.name and not failed:
            failed += 1
            raise AssertionError("a mistake")
        return follow(*args)

    @torch.library.custom_op("kernelscope_test::add_one_", mutates_args=("x",))
    def add_one(x: torch.Tensor) -> None:
        x.add_(1)

    def function(x: torch.Tensor) -> torch.Tensor:
        add_one(x)
        return x @ x

    torch._dynamo.reset()
    monkeypatch.setattr(LaunchCheck, place, fails_at_a_write_in_place)
    with kernelscope.shadow() as result:
        compiled = torch.compile(function)
        for _ in range(3):
            compiled(torch.linspace(0, 1, 16).reshape(4, 4))
    assert failed
    assert result.culprits == [], str(result)
    assert result.status == 2


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError("only in training mode")


@torch.compiler.disable
def _without_backward(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _Failing.apply(x)
    return found


def test_a_backward_that_fails_in_eager_too_is_left_out() -> None:
    """That of an RNN of cuDNN in eval mode."""
    x = torch.randn(4, requires_grad=True)
    result = kernelscope.check_correctness(lambda x: _without_backward(x.sin()), (x,))
    assert not result
    assert result.counts.buffers == 1
    assert any("The backward was not run: it fails in eager, too" in note for note in result.notes)
    assert "only in training mode" in str(result)


def test_a_backward_that_fails_only_when_compiled_raises() -> None:
    calls: list[int] = []

    @torch.compiler.disable
    def first_only(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return _without_backward(x) if len(calls) == 1 else x * 2

    with pytest.raises(RuntimeError, match="only in training mode"):
        kernelscope.check_correctness(lambda x: first_only(x.sin()), (torch.randn(4, requires_grad=True),))


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, lambda x: x[:, :0] @ x[:0]])
def test_what_has_no_values_is_no_failure(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: (make(x), x + 1))(torch.eye(3))
    assert not result, str(result)
    assert not result.failures, result.details()
