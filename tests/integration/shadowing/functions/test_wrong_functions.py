"""Compiled functions that differ from the uncompiled ones though each kernel is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.programs import wrong_functions as programs
from tests.programs.wrong_functions import WRONG_FUNCTIONS, WrongFunction, wrong_gradients
from tests.programs.wrong_launches import STRIDES_OF_RESULTS, WRONG_LAUNCHES
from torch._inductor.utils import fresh_cache
from torch.utils._pytree import tree_leaves

import kernelscope
from kernelscope import ShadowResult
from kernelscope.shadowing.culprit import Culprit
from kernelscope.text.frames import source_line

ALL = [*WRONG_FUNCTIONS, *WRONG_LAUNCHES]
SLOW = {programs.enlarges_pixels_smoothly}  # a kernel of a thousand lines


def shadowed(each: WrongFunction, backend: Any = "") -> ShadowResult:
    chosen = backend or (wrong_gradients if each.backend == "wrong_gradients" else each.backend)
    torch._dynamo.reset()
    with fresh_cache(), each.plant(), kernelscope.shadow() as result:
        made = torch.compile(each.fn, backend=chosen)(*each.arguments())
        if each.differentiates:
            made.square().sum().backward()
    return result


def assert_named(each: WrongFunction, result: ShadowResult) -> Culprit:
    """One culprit, with its step and the line of the user."""
    assert result.status == 1, str(result)
    assert len(result.culprits) == 1, str(result)
    assert not result.failures
    culprit = result.culprits[0]
    is_kernel = culprit.verdict == "wrong-kernel"
    assert (culprit.kernel_name if is_kernel else culprit.step) == each.step, str(result)
    frame = culprit.origin[0]
    assert frame.function == each.fn.__name__
    assert (each.line or f"def {each.fn.__name__}(") in source_line(frame), str(result)
    first = str(result).partition("\n")[0]
    assert each.step in first
    assert f":{frame.line} in {each.fn.__name__}" in first
    return culprit


@pytest.mark.parametrize("each", WRONG_FUNCTIONS, ids=str)
def test_is_named(each: WrongFunction) -> None:
    """With the first backend that gets it wrong: no kernel runs, so the function as a whole is compared."""
    if not each.is_wrong():
        pytest.skip("this version of torch compiles it rightly")
    culprit = assert_named(each, shadowed(each))
    assert (culprit.verdict, culprit.argument) == ("wrong-function", each.wrong)


@pytest.mark.parametrize(
    "each",
    [
        pytest.param(e, id=str(e), marks=pytest.mark.slow if e.fn in SLOW else ())
        for e in ALL
        if e.by_inductor
    ],
)
def test_is_named_when_inductor_compiles_it(each: WrongFunction) -> None:
    if not each.is_wrong():
        pytest.skip("this version of torch compiles it rightly")
    culprit = assert_named(each, shadowed(each, "inductor"))
    assert culprit.verdict == each.by_inductor
    if "float64" in culprit.numbers:
        wide, eager = (float(culprit.numbers[name]) for name in ("float64", "eager"))
        assert wide == pytest.approx(eager, rel=1e-4, nan_ok=True), str(culprit)
    else:
        assert each.kind in (programs.DYNAMO, programs.ALIASES, STRIDES_OF_RESULTS)
        assert {"compiled", "eager"} <= culprit.numbers.keys(), str(culprit)


def test_there_are_three_of_each_class() -> None:
    kinds = [each.kind for each in ALL]
    assert all(kinds.count(kind) >= 3 for kind in set(kinds))
    assert len(set(kinds)) >= 9


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
            return tuple(r + (calls == 6) for r in module(*args))

        return run

    for every in (False, True):
        torch._dynamo.reset()
        calls = 0
        with kernelscope.shadow(every=every) as result:
            compiled = torch.compile(lambda x: x * 2, backend=backend)
            for _ in range(7):
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
