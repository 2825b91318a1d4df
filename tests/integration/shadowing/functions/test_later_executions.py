"""Functions that are right at first, and backward passes of the program that Dynamo traced."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import kernelscope
from kernelscope.diagnosis.diagnose import NEVER_CHECKED
from kernelscope.shadowing.regions import function_run
from kernelscope.shadowing.regions.region import Executions

_NOW = {"scale": 1.0}


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    _NOW["scale"] = 1.0
    return


def _compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, backend="aot_eager", **options)


def _when(result: Any) -> list[tuple[int, int]]:
    """By note: the first execution that was found wrong, and the last that was compared and right."""
    pattern = r"execution (\d+) was compared and is right, and execution (\d+) is wrong"
    found = re.findall(pattern, "\n".join(result.notes))
    return [(int(wrong), int(right)) for right, wrong in found]


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x * _NOW["scale"]


@torch._dynamo.assume_constant_result
def _scale() -> float:
    return _NOW["scale"]


def _scaled_by_a_constant(x: torch.Tensor) -> torch.Tensor:
    return x * _scale() + 1


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (_scaled, {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}),
        (_scaled_by_a_constant, {}),
    ],
)
def test_a_constant_that_has_changed_since(fn: Any, options: dict[str, Any]) -> None:
    compiled = _compiled(fn, options=options) if options else _compiled(fn)
    with kernelscope.shadow() as result:
        compiled(torch.ones(5))
        assert not result
        _NOW["scale"] = 3.0
        compiled(torch.ones(5))
    found = result.culprit
    assert found is not None
    assert found.step == "Dynamo"
    assert found.origin[0].function == fn.__name__
    assert _when(result) == [(2, 1)]


def test_a_constant_that_changes_after_many_executions() -> None:
    compiled = _compiled(_scaled_by_a_constant)
    with kernelscope.shadow() as result:
        for step in range(16):
            _NOW["scale"] = 1.0 if step < 10 else 2.0
            compiled(torch.ones(5))
    assert result
    assert result.counts.regions == 1
    assert _when(result) == [(16, 8)]


def test_a_gradient_is_wrong_in_the_execution_whose_backward_it_is() -> None:
    """Of two executions the first one's backward runs last."""
    compiled, x = _compiled(_squared), torch.arange(1.0, 6.0, requires_grad=True)
    with kernelscope.shadow() as result:
        compiled(x).backward()
        second, _ = compiled(x), compiled(x)
        _NOW["scale"] = 3.0
        second.backward()
    assert result
    assert _when(result) == [(2, 1)]


@pytest.mark.parametrize(("refused", "when"), [((2,), [(3, 1)]), ((1, 2), [])])
def test_nothing_is_known_of_executions_that_were_not_compared(
    refused: tuple[int, ...], when: list[tuple[int, int]]
) -> None:
    compiled = _compiled(_scaled_by_a_constant)
    with kernelscope.shadow() as result:
        for execution in (1, 2, 3):
            _NOW["scale"] = 2.0 if execution == 3 else 1.0
            reason = "refused" if execution in refused else ""
            with mock.patch.object(function_run.UserFunction, "why_not", return_value=reason):
                compiled(torch.ones(5))
    assert result
    assert _when(result) == when


def test_why_says_which_executions_are_not_compared() -> None:
    executions = Executions(every=False)
    assert [n for n in range(1, 20) if executions.is_next_compared(0, ())] == [1, 2, 3, 4, 8, 16]
    assert any("except in their executions 1 to 4, 8, 16, 32 …" in each for each in NEVER_CHECKED)


def test_a_function_that_stays_right_is_counted_once() -> None:
    compiled = _compiled(lambda x: x.sin() * 2)
    with kernelscope.shadow() as result:
        for _ in range(9):
            compiled(torch.ones(5))
    assert (result.counts.regions, result.counts.unjudged_regions, bool(result)) == (1, 0, False)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * 2 * x * _NOW["scale"]


class _SquareElsewhere(_Square):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * 2 * x * (3 if torch.compiler.is_compiling() else 1)


def _squared(x: torch.Tensor) -> torch.Tensor:
    return _Square.apply(x.sin()).sum()  # type: ignore[no-any-return,no-untyped-call]


def _shadowed_gradient(fn: Any, between: float = 1.0) -> tuple[Any, torch.Tensor]:
    compiled, x = _compiled(fn), torch.arange(1.0, 6.0, requires_grad=True)
    with kernelscope.shadow() as result:
        y = compiled(x)
        _NOW["scale"] = between
        y.backward()
    assert x.grad is not None
    return result, x.grad


def test_a_weight_on_both_sides_of_a_graph_break() -> None:
    """The second function's own backward must not go on into the first, whose graph can be used only once."""
    weight = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()

    def tied(tokens: torch.Tensor) -> torch.Tensor:
        hidden = weight[tokens].tanh()
        torch._dynamo.graph_break()
        return _Square.apply(hidden @ weight.t()).sum()  # type: ignore[no-any-return,no-untyped-call]

    _NOW["scale"] = 1.0
    compiled, tokens = _compiled(tied), torch.arange(4)
    with kernelscope.shadow() as result:
        compiled(tokens).backward()
    assert not result, result.summary()
    assert any("the gradient of weight was compared with the graph" in note for note in result.notes)
    gradient, weight.grad = weight.grad, None
    tied(tokens).backward()
    assert gradient is not None
    torch.testing.assert_close(gradient, weight.grad)


def test_a_backward_that_reads_what_changed_after_the_forward() -> None:
    result, gradient = _shadowed_gradient(_squared, between=3.0)
    found = result.culprit
    assert found is not None
    assert found.step == "Dynamo"
    assert found.argument == "the gradient of x"
    assert found.phase == "backward"
    assert found.origin[0].function == "_squared"
    assert found.where is not None
    at = found.where[0]
    assert found.numbers["compiled"] == pytest.approx(gradient[at].item())
    assert found.numbers["eager"] == pytest.approx(3 * gradient[at].item())


def test_a_backward_of_the_program_that_is_right() -> None:
    result, _ = _shadowed_gradient(_squared)
    assert not result.culprits
    assert not result.failures
    assert not result.notes
    assert result.counts.traced_regions == 0


def test_a_backward_that_asks_whether_it_is_compiled() -> None:
    result, _ = _shadowed_gradient(lambda x: _SquareElsewhere.apply(x).sum())  # type: ignore[no-untyped-call]
    assert not result.culprits
    assert result.counts.traced_regions == 1
    assert any("checks whether it is being compiled" in note for note in result.notes)


@contextmanager
def _without_detach() -> Iterator[None]:
    """In the traced graph, a view of the tensor stands in its place."""
    from torch._dynamo.output_graph import SubgraphTracer

    create = SubgraphTracer.create_proxy

    def create_proxy(self: Any, kind: str, target: Any, args: Any, *more: Any, **named: Any) -> Any:
        if target == "detach":
            target, args = "view_as", (args[0], args[0])
        return create(self, kind, target, args, *more, **named)

    with mock.patch.object(SubgraphTracer, "create_proxy", create_proxy):
        yield


def test_dynamo_loses_a_detach() -> None:
    """The values are right, the traced graph is compiled as it is, and no gradient stops."""
    with _without_detach():
        result, _ = _shadowed_gradient(lambda x: (x * x.detach().sin()).sum())
    assert result.culprit is not None
    assert result.culprit.step == "Dynamo"


def test_what_a_backward_is_compared_with_is_freed() -> None:
    kept = []

    class Kept(_Square):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            made = x * x
            ctx.save_for_backward(x)
            kept.append(weakref.ref(made)) if not torch.compiler.is_compiling() else None
            return made

    def fn(x: torch.Tensor) -> torch.Tensor:
        return Kept.apply(x).sum()  # type: ignore[no-any-return,no-untyped-call]

    _shadowed_gradient(fn)
    assert all(reference() is None for reference in kept)


class _Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient + torch.randn_like(gradient)


@pytest.mark.parametrize("shadowed", [False, True])
def test_a_backward_that_draws_draws_once(shadowed: bool) -> None:
    torch.manual_seed(0)
    torch.randn(3)
    expected = torch.randn(3)
    x = torch.ones(3, requires_grad=True)
    torch.manual_seed(0)
    compiled = _compiled(lambda x: _Noisy.apply(x * 3).sum())  # type: ignore[no-untyped-call]
    with kernelscope.shadow() if shadowed else nullcontext():
        compiled(x).backward()
    assert torch.equal(torch.randn(3), expected)


def _pair() -> TwoTensor:
    return TwoTensor(torch.arange(4.0), torch.ones(4))  # type: ignore[no-untyped-call]


def test_a_tensor_that_consists_of_tensors() -> None:
    """It has no memory of its own: its address ended the program."""
    with kernelscope.shadow() as result:
        made = _compiled(lambda a, b: (a * 2 + b).relu())(_pair(), torch.ones(4))
    assert isinstance(made, TwoTensor)
    assert not result.failures
    assert (result.counts.regions, result.status) == (1, 0)


def test_one_of_the_tensors_of_which_a_result_consists_is_wrong() -> None:
    compiled = _compiled(lambda x: x * _scale())
    with kernelscope.shadow() as result:
        compiled(_pair())
        _NOW["scale"] = 2.0
        compiled(_pair())
    assert result.culprit is not None
    assert result.culprit.argument == "a of the result"
