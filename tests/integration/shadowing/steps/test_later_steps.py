"""Steps of the compiler that are right in the first execution of a graph, and wrong in a later one."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch._inductor import config, decomposition
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.nn import functional as F

import kernelscope
from kernelscope.shadowing.regions.copies import Snapshot
from kernelscope.shadowing.regions.eager_run import Eager
from kernelscope.shadowing.steps.inputs import CalledGraph

aten = torch.ops.aten


class _Replaces(CustomGraphPass):
    """Puts one operator in place of another."""

    def __init__(self, old: Any, new: Any, arguments: Callable[[Any], Any] = lambda args: args) -> None:
        self._old, self._new, self._arguments = old, new, arguments

    def __call__(self, graph: torch.fx.Graph) -> None:  # type: ignore[override]
        for node in graph.nodes:
            if node.target is self._old:
                node.target, node.args = self._new, self._arguments(node.args)

    def uuid(self) -> Any:
        return None


@contextmanager
def _wrong_leak() -> Iterator[None]:
    def leaky_relu(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
        return torch.where(x > 0, x, x * negative_slope * 1.5)

    with mock.patch.dict(decomposition.decompositions, {aten.leaky_relu.default: leaky_relu}):
        decomposition.fast_random_decomps.cache_clear()
        yield
    decomposition.fast_random_decomps.cache_clear()


def _rectified(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z = torch.relu(y)
    return z.sin() * 2


def _leaking(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return F.leaky_relu(y, 0.1).sum(0)


def _averaged(x: torch.Tensor) -> torch.Tensor:
    y = x.sum(0)
    return y / x.shape[0]


@dataclass(frozen=True)
class _Late:
    fn: Callable[[torch.Tensor], torch.Tensor]
    plant: Callable[[], AbstractContextManager[Any]]
    name: str
    line: str
    values: tuple[torch.Tensor, ...]  # only the last shows the mistake
    differentiates: bool = False
    dynamic: bool | None = None

    def __str__(self) -> str:
        return f"{self.fn.__name__}-{self.name}"


_PASS = _Replaces(aten.relu.default, aten.abs.default)
_TRACED_PASS = _Replaces(torch.relu, torch.abs)
_MASK_PASS = _Replaces(aten.le.Scalar, aten.lt.Scalar, lambda args: (args[0], -0.5))
_COUNT_PASS = _Replaces(aten.div.Tensor, aten.div.Tensor, lambda args: (args[0], 4))
_SIGNS = torch.ones(6), torch.tensor([-3.0, 1, 2, 3, -2, 5])
_LATE = (
    _Late(
        _rectified,
        lambda: config.patch(post_grad_custom_pre_pass=_PASS),
        "post_grad_custom_pre_pass",
        "relu",
        _SIGNS,
    ),
    _Late(
        _rectified,
        lambda: config.patch(pre_grad_custom_pass=_TRACED_PASS),
        "pre_grad_custom_pass",
        "relu",
        _SIGNS,
    ),
    _Late(
        _rectified,
        lambda: config.patch(post_grad_custom_pre_pass=_MASK_PASS),
        "post_grad_custom_pre_pass",
        "relu",
        (torch.ones(6), torch.linspace(-1.4, 1, 6)),
        differentiates=True,
    ),
    _Late(_leaking, _wrong_leak, "aten.leaky_relu.default", "leaky_relu", _SIGNS),
    _Late(
        _averaged,
        lambda: config.patch(joint_custom_post_pass=_COUNT_PASS),
        "joint_custom_post_pass",
        "y /",
        (torch.ones(4, 3), torch.ones(6, 3)),
        dynamic=True,
    ),
)


@pytest.mark.parametrize("late", _LATE, ids=str)
def test_the_step_and_the_line_are_named(late: _Late) -> None:
    compiled = torch.compile(late.fn, dynamic=late.dynamic)
    with late.plant(), kernelscope.shadow() as result:
        for value in late.values:
            assert not result
            made = compiled(value.clone().requires_grad_(late.differentiates))
            if late.differentiates:
                made.sum().backward()
    (found,) = result.culprits
    assert found.verdict == "wrong-stage"
    assert late.name in found.kernel_name
    line = Path(inspect.getfile(late.fn)).read_text().splitlines()[found.origin[0].line - 1]
    assert late.line in line
    assert not result.failures
    assert any("differs from eager" in note for note in result.notes)


_MADE = {"dtype": torch.float32, "device": torch.device("cpu"), "pin_memory": False}


def _limits_gradients(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name.startswith("tangents"):
            with graph.inserting_after(node):
                limited = graph.call_function(aten.minimum.default, (node, node))
            with graph.inserting_before(limited):
                limit = graph.call_function(aten.full.default, ([6], 50.0), _MADE)
            limited.args = node, limit
            limited.meta["val"] = limit.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(
                limited, delete_user_cb=lambda user, new=(limited, limit): user not in new
            )


class _LimitsGradients(_Replaces):
    def __init__(self) -> None:
        pass

    def __call__(self, graph: torch.fx.Graph) -> None:  # type: ignore[override]
        _limits_gradients(graph)


@pytest.mark.parametrize("scales", [(1, 1, 300), (300,)], ids=["later", "first"])
@pytest.mark.parametrize("name", ["joint_custom_post_pass", "post_grad_custom_pre_pass"])
def test_a_pass_that_is_wrong_for_large_gradients_alone(name: str, scales: tuple[float, ...]) -> None:
    """Those that are made up are small, and so are those of the first executions."""
    compiled = torch.compile(_rectified)
    with config.patch({name: _LimitsGradients()}), kernelscope.shadow() as result:
        for scale in scales:
            assert not result
            (compiled(torch.linspace(-2, 2, 6, requires_grad=True)).sum() * scale).backward()
    assert [(c.verdict, name in c.kernel_name) for c in result.culprits] == [("wrong-stage", True)], result
    assert not result.failures


def test_nothing_is_kept_of_an_execution_that_was_compared() -> None:
    compiled, results = torch.compile(_rectified, backend="aot_eager"), []
    with kernelscope.shadow() as result:
        for size in (6, 5, 4):
            compiled(x := torch.randn(size, requires_grad=True)).sum().backward()
            results.append(x)
        del x
        gc.collect()
        kept = [o for o in gc.get_objects() if type(o) in (Snapshot, Eager)]
    assert not result
    assert kept == []


def test_steps_are_counted_once() -> None:
    compiled = torch.compile(_rectified)
    with kernelscope.shadow() as result:
        for _ in range(3):
            compiled(torch.randn(6))
    assert not result
    assert result.counts.stages == 4


def test_inputs_of_a_called_graph_are_those_before_the_call() -> None:
    x, number = torch.arange(4.0), 3
    before = Snapshot([x])
    other = torch.ones(2)
    called = CalledGraph("", {"a": other, "b": number, "c": x[1:], "d": x}, [x])
    x.zero_()
    other.zero_()
    made = called.inputs(before)
    assert made["a"].tolist() == [1, 1]
    assert made["b"] == number
    assert made["d"].tolist() == [0, 1, 2, 3]
