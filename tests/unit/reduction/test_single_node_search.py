"""Where reduce looks first: each node by itself, and everything as small as it goes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

import kernelscope
from kernelscope.reduction.candidates import Candidate, of_module, values_of
from kernelscope.reduction.failures import Failure
from kernelscope.reduction.journal import Journal
from kernelscope.reduction.reducer import NothingToReduce, reduce_from
from kernelscope.reduction.shrinking import smallest
from kernelscope.reduction.single_node_search import Single, Singles, _is_near, ahead_of, singles_of
from kernelscope.reduction.trials import Trials


class Program(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((8,), 3.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        a = torch.sin(x) + y
        values, places = torch.max(a * self.scale, 1)
        return torch.relu(a).sum(1) * values, places


def start() -> Candidate:
    torch.manual_seed(0)
    return of_module(symbolic_trace(Program()), [torch.randn(6, 8), torch.randn(6, 8)])


def test_each_node_has_inputs_of_its_own() -> None:
    whole = start()
    values = values_of(whole)
    nodes = singles_of(whole, values)
    assert {"sin", "add", "relu", "mul", "sum_1"} <= {single.node.name for single in nodes}
    module = Singles(nodes)._module()
    results = module(*[v for single in reversed(nodes) for v in single.given])
    expected = [values[single.node.name] for single in reversed(nodes)]
    assert all(torch.equal(r, v) for r, v in zip(results, expected, strict=True))
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    assert all(len(n.users) == 1 for n in placeholders)
    assert list(module.graph.nodes)[: len(placeholders)] == placeholders


def wrong(nodes: list[Single], values: dict[str, Any]) -> list[str]:
    with closing(Singles(nodes)) as singles:
        return singles.wrong(nodes, values)


def alike(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two sines, a sum of two and one of the same twice, a product with 2 and one with 3."""
    return ((x.sin() + y).sin() * 2 + y.t().t()) * 3 + (y + y)


def test_nodes_of_one_sort_are_compiled_once_and_each_is_looked_at() -> None:
    torch.manual_seed(0)
    whole = of_module(symbolic_trace(alike), [torch.randn(4, 4), torch.randn(4, 4)])
    values = values_of(whole)
    nodes = singles_of(whole, values)
    singles = Singles(nodes)
    # t twice, on tensors of other strides; three sums are of one sort.
    assert (len(nodes), len(singles)) == (10, 7)
    values["sin_1"] = values["sin_1"] + 1
    assert singles.wrong(nodes, values) == ["sin_1"]
    singles.close()
    assert singles.has(nodes[:3])
    assert not Singles(nodes[:1]).has(nodes)


def test_what_was_compiled_ahead_is_asked_about_a_part_of_it() -> None:
    """Products are left out; what nobody asks about is given zeros, which are places in a table, too."""

    def program(x: torch.Tensor, table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return (table[places] @ x).relu().sin() + x.expand(4, 8, 8)

    inputs = [torch.randn(8, 8), torch.randn(100, 8), torch.randint(100, (4, 8))]
    traced = make_fx(program, tracing_mode="fake")(*inputs)
    ahead = ahead_of([traced])
    assert ahead is not None
    whole = of_module(traced, inputs)
    values = values_of(whole)
    nodes = singles_of(whole, values)
    assert not ahead.has(nodes), "a product"
    part = [single for single in nodes if single.node.name in ("relu", "sin")]
    assert ahead.has(part)
    with closing(ahead), torch._inductor.utils.fresh_cache():
        with torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
            ahead.compile()
        assert ahead.wrong(part, values) == ["relu"]


def test_nothing_smaller_is_tried_than_all_at_once() -> None:
    least = smallest(start())
    assert least is not None
    assert [tuple(v.shape) for v in least.inputs] == [(1, 1), (1, 1), (1,)]
    assert all(torch.equal(v, torch.ones_like(v)) for v in least.inputs)
    assert smallest(least) is None


def test_the_wrong_node_is_seen_and_a_right_graph_has_none() -> None:
    whole = start()
    values = values_of(whole)
    nodes = singles_of(whole, values)
    with torch._inductor.utils.fresh_cache():
        with torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
            assert wrong(nodes, values) == ["relu"]
        broken = torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
        told: list[str] = []
        with broken, closing(Singles(nodes)) as singles:
            trials = Trials(lambda candidate: None, Journal(), tell=told.append)
            assert trials.look("key", 5, lambda: singles.wrong(nodes, values)) == []
    assert "each by itself: cannot be told, CppCompileError" in told[0]


def test_rounding_is_not_wrong() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        value = torch.linspace(1, 2, 50).to(dtype)
        step = torch.finfo(dtype).eps
        assert _is_near(value + step, value)
        assert not _is_near(value * 1.2, value)


def test_a_failure_that_changes_is_not_followed() -> None:
    """The second run of the first graph fails in another way: that is no failure to reduce."""
    failures = iter([Failure("kernel", "wrong-kernel", "cpp"), Failure("exception", "KeyError")])
    with pytest.raises(NothingToReduce, match=r"not deterministic(.|\n)*in another way \(KeyError"):
        reduce_from([start()], None, Trials(lambda candidate: next(failures), Journal()))


def test_a_wrong_guess_costs_a_trial_and_nothing_else(tmp_path: Path) -> None:
    """The failure needs two nodes: the guess finds no single one, and the search does."""
    wanted = Failure("kernel", "wrong-kernel", "cpp", operators=frozenset({"sin", "relu"}))

    def check(candidate: Candidate) -> Failure | None:
        found = {getattr(n.target, "__name__", "") for n in candidate.module.graph.nodes}
        return wanted if {"sin", "relu"} <= found else None

    journal = Journal(tmp_path / "journal.jsonl")
    found = reduce_from([start()], wanted, Trials(check, journal), guess=True)
    assert found.nodes == 2


def test_a_planted_fault_takes_few_trials() -> None:
    def program() -> None:
        with torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
            torch.compile(lambda x, y: ((x.sin() + y) * 1.5).relu().cos() - y)(x, y)

    x, y = torch.randn(8, 16), torch.randn(8, 16)
    told: list[str] = []
    with (
        torch._inductor.utils.fresh_cache(),
        torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}),
    ):
        found = kernelscope.reduce(program, tell=told.append)
    assert found.nodes == 1
    assert "relu" in found.candidate.code
    assert found.candidate.inputs[0].shape == (1, 1)
    assert "each by itself: 1 wrong" in told[0]
    assert found.trials == 2  # all nodes apart, and the wrong one


def test_who_waits_for_a_search_does_without_torch() -> None:
    """The child loads it; loading it twice would take as long as several trials."""
    names = "kernelscope.reduction.script_parent, kernelscope.cli.programs.bisect, kernelscope.trials.workers"
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
