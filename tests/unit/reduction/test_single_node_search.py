"""Where reduce looks first: each node by itself, and everything as small as it goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch.fx import symbolic_trace

import kernelscope
from kernelscope.reduction.candidate_trials import CandidateTrials
from kernelscope.reduction.candidates import Candidate, of_module, values_of
from kernelscope.reduction.reducer import NothingToReduce, reduce_from
from kernelscope.reduction.single_node_search import is_near, joint_module, key_of, singles_of, wrong_nodes
from kernelscope.reduction.smaller_inputs import smallest
from kernelscope.trials.failure_signature import FailureSignature
from kernelscope.trials.journal import Journal


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
    module = joint_module(nodes)
    results = module(*[v for single in nodes for v in single.given])
    expected = [values[single.node.name] for single in nodes]
    assert all(torch.equal(r, v) for r, v in zip(results, expected, strict=True))
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    assert all(len(n.users) == 1 for n in placeholders)
    assert list(module.graph.nodes)[: len(placeholders)] == placeholders


def alike(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two sines, a sum of two and one of the same twice, a product with 2 and one with 3."""
    return ((x.sin() + y).sin() * 2 + y.t().t()) * 3 + (y + y)


def test_nodes_of_one_sort_are_compiled_once_and_each_is_looked_at() -> None:
    torch.manual_seed(0)
    whole = of_module(symbolic_trace(alike), [torch.randn(4, 4), torch.randn(4, 4)])
    values = values_of(whole)
    nodes = singles_of(whole, values)
    # t twice, on tensors of other strides; three sums are of one sort.
    assert (len(nodes), len({single.sort for single in nodes})) == (10, 7)
    values["sin_1"] = values["sin_1"] + 1
    assert wrong_nodes(nodes, values) == ["sin_1"]
    assert key_of(nodes) == key_of([*nodes, *nodes[:3]])
    assert key_of(nodes) != key_of(nodes[:1])


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
            assert wrong_nodes(nodes, values) == ["relu"]
        broken = torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
        told: list[str] = []
        with broken:
            trials = CandidateTrials(lambda candidate: None, Journal(), tell=told.append)
            assert trials.find_wrong_nodes("key", 5, lambda: wrong_nodes(nodes, values)) == []
    assert "each alone: inconclusive, CppCompileError" in told[0]


def test_rounding_is_not_wrong() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        value = torch.linspace(1, 2, 50).to(dtype)
        step = torch.finfo(dtype).eps
        assert is_near(value + step, value)
        assert not is_near(value * 1.2, value)


def test_a_failure_that_changes_is_not_followed() -> None:
    """The second run of the first graph fails in another way: that is no failure to reduce."""
    failures = iter(
        [FailureSignature("kernel", "wrong-kernel", "cpp"), FailureSignature("exception", "KeyError")]
    )
    with pytest.raises(NothingToReduce, match=r"not deterministic(.|\n)*then failed differently \(KeyError"):
        reduce_from([start()], None, CandidateTrials(lambda candidate: next(failures), Journal()))


def test_a_wrong_guess_costs_a_trial_and_nothing_else(tmp_path: Path) -> None:
    """The failure needs two nodes: the guess finds no single one, and the search does."""
    wanted = FailureSignature("kernel", "wrong-kernel", "cpp", operators=frozenset({"sin", "relu"}))

    def check(candidate: Candidate) -> FailureSignature | None:
        found = {getattr(n.target, "__name__", "") for n in candidate.module.graph.nodes}
        return wanted if {"sin", "relu"} <= found else None

    journal = Journal(tmp_path / "journal.jsonl")
    found = reduce_from([start()], wanted, CandidateTrials(check, journal), guess=True)
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
    assert "each alone: 1 wrong" in told[0]
    assert found.trials == 2  # all nodes apart, and the wrong one


def test_who_waits_for_a_search_does_without_torch() -> None:
    """The child loads it; loading it twice would take as long as several trials."""
    names = ("reduction.script_parent", "cli.programs.bisect", "trials.trial_processes")
    modules = ", ".join(f"kernelscope.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
