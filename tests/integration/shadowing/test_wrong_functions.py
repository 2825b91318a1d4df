"""Compiled functions that differ from the uncompiled ones though each kernel is right."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tests.programs.wrong_functions import DYNAMO, WRONG_FUNCTIONS, WrongFunction, wrong_gradients
from torch.utils._pytree import tree_leaves

import kernelscope
from kernelscope import ShadowResult


def shadowed(each: WrongFunction) -> ShadowResult:
    backend: Any = wrong_gradients if each.backend == "wrong_gradients" else each.backend
    torch._dynamo.reset()
    with each.plant(), kernelscope.shadow() as result:
        made = torch.compile(each.fn, backend=backend)(*each.arguments())
        if each.differentiates:
            made.square().sum().backward()
    return result


def differs(each: WrongFunction) -> bool:
    torch._dynamo.reset()
    eager, made = each.fn(*each.arguments()), torch.compile(each.fn, backend=each.backend)(*each.arguments())
    pairs = zip(tree_leaves(eager), tree_leaves(made), strict=False)
    return any(
        not torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a != b
        for a, b in pairs
    )


@pytest.mark.parametrize("each", WRONG_FUNCTIONS, ids=str)
def test_is_named(each: WrongFunction) -> None:
    result = shadowed(each)
    culprit = result.culprit
    if culprit is None and each.plant is nullcontext and not differs(each):
        pytest.skip("this version of torch compiles it rightly")
    assert culprit is not None, str(result)
    assert result.status == 1
    if culprit.verdict == "wrong-function":
        assert culprit.argument == each.wrong
        assert culprit.origin[0].function == each.fn.__name__
        assert (culprit.kernel_name == DYNAMO) == (each.step == DYNAMO)
    assert each.fn.__name__ in str(result) or culprit.is_step
    assert not result.failures


def test_there_are_three_of_each_class() -> None:
    kinds = [each.kind for each in WRONG_FUNCTIONS]
    assert all(kinds.count(kind) >= 3 for kind in set(kinds))
    assert len(set(kinds)) >= 6


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: torch.Tensor, *rest: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        self.steps.add_(1)
        made = self.body(x) * scale + sum(r.sum() for r in rest)
        return {"made": made, "view": made[:, 1:], "best": made.argmax(-1), "shape": made.shape}


def test_nothing_is_found_and_nothing_is_changed() -> None:
    """A clean program: no alarm, and the same results, gradients, buffers and random numbers as without."""

    def run() -> list[Any]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = Model()
        compiled = torch.compile(model, backend="aot_eager_decomp_partition")
        x = torch.randn(5, 6).requires_grad_()
        hidden = x * 2  # not a leaf
        found: list[Any] = []
        for _ in range(2):
            made = compiled(hidden, torch.ones(2), scale=0.5)
            (made["made"].square().sum() + made["view"].sum()).backward(retain_graph=True)
            found += [made, torch.rand(3)]
        return [*tree_leaves(found), x.grad, *[p.grad for p in model.parameters()], *model.buffers()]

    bare = run()
    with kernelscope.shadow() as result:
        shadowed = run()
    assert not result, str(result)
    assert result.counts.regions == 1
    assert not result.unchecked
    assert not result.notes
    for one, other in zip(bare, shadowed, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_random_results_are_left_out() -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: (torch.nn.functional.dropout(x), x + 1), backend="aot_eager")(torch.ones(64))
    assert result.status == 0
    assert not result
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: torch.empty(8) + x, backend="aot_eager_decomp_partition")(torch.ones(8))
    assert not result, str(result)


def test_every_execution_is_compared_on_request() -> None:
    calls = 0

    def backend(module: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            return tuple(r + (calls == 2) for r in module(*args))

        return run

    for every in (False, True):
        torch._dynamo.reset()
        calls = 0
        with kernelscope.shadow(every=every) as result:
            compiled = torch.compile(lambda x: x * 2, backend=backend)
            for _ in range(3):
                compiled(torch.ones(3))
        assert bool(result) == every


def test_what_cannot_run_again_is_said() -> None:
    seen: list[int] = []

    def counts(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(seen))
        return x * len(seen)

    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(counts, backend="eager")(torch.ones(3))
    assert not result
    assert seen == [0]
    assert any("not with its code: it changes seen" in note for note in result.notes), result.notes


def asks(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.compiler.is_compiling() else x * 3


def test_a_function_that_asks_whether_it_is_compiled_is_not_accused() -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(asks, backend="eager")(torch.ones(3))
    assert not result
    assert any("checks whether it is being compiled" in note for note in result.notes)
