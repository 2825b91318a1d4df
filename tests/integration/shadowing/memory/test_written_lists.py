"""A list of tensors that an operator writes to and does not return: the parameters of an optimizer's step."""

from __future__ import annotations

import operator
from pathlib import Path

import torch
from tests.integration.faults.planting import Fault, assert_named, in_kernel, look_for
from tests.integration.only_torch import OnlyTorch
from torch import nn
from torch.fx import Graph, GraphModule

import kernelscope
from kernelscope.reduction.api import reduce_captured
from kernelscope.reduction.candidate_trials import CandidateTrials, shadow_check
from kernelscope.reduction.candidates import Candidate, of_module, part_of
from kernelscope.reduction.capture import capture
from kernelscope.repro import call_script, files
from kernelscope.trials.failure_signature import FailureSignature
from kernelscope.trials.journal import Journal


def step() -> None:
    weights = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]
    for w in weights:
        w.grad = torch.randn_like(w)
    torch.compile(torch.optim.SGD(weights, lr=0.1, weight_decay=0.3, foreach=True).step)()


def test_both_are_judged() -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        step()
    assert result.status == 0, str(result)
    assert result.counts.buffers == 2
    assert not result.unchecked, result.details()


WRONG = in_kernel(r"float>\(-0\.1\)", "float>(-0.11)", count=2)
FAULT = Fault("not returned", "written list", step, WRONG, "=out_ptr0", phase="")


def test_a_wrong_constant_is_named() -> None:
    result, canary = look_for(FAULT)
    assert_named(FAULT, result, canary)


def test_the_script_of_a_wrong_call_shows_it(tmp_path: Path, only_torch: OnlyTorch) -> None:
    with kernelscope.record(values="save", stages=True, path=tmp_path / "r"):
        result, _ = look_for(FAULT)
    assert result.culprit is not None
    script = call_script(kernelscope.load(tmp_path / "r.kscope"), result.culprit.index)
    status, said = only_torch.run(files.write(script, tmp_path))
    assert status == 1, said
    for argument in ("out_ptr0", "out_ptr1"):
        assert f"FAIL {argument}: differs from eager" in said


def test_the_smallest_graph_still_fails() -> None:
    """Each trial compiles a graph of its own, which gets the same fault."""

    def planted_step() -> None:
        with WRONG():
            step()

    def check(candidate: Candidate) -> FailureSignature | None:
        with WRONG():
            return shadow_check(candidate)

    captured = capture(planted_step)
    found = reduce_captured(captured, CandidateTrials(check, Journal()))
    assert found.nodes <= 2, str(found)
    assert captured.failure is not None
    assert captured.failure.is_same(found.failure)


def test_a_whole_graph_runs_in_eager() -> None:
    """Items of what `_foreach_add_` returns, which is nothing, are the tensors that it wrote to."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    written = graph.call_function(torch.ops.aten._foreach_add_.List, ([x], [y]))
    item = graph.call_function(operator.getitem, (written, 0))
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (item, 3)),))
    made = of_module(GraphModule(nn.Module(), graph), [torch.ones(2), torch.ones(2)])
    given = [value.clone() for value in made.inputs]
    assert torch.equal(made.module(*given)[0], torch.full((2,), 6.0))
    assert torch.equal(given[0], torch.full((2,), 2.0))


def test_its_part_of_a_graph_runs_by_itself() -> None:
    """For `reduce`: called by itself, `_foreach_add_` returns nothing of which there could be items."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    added = graph.call_function(torch.ops.aten._foreach_add_.List, ([x], [y]))
    graph.output(item := graph.call_function(operator.getitem, (added, 0)))
    whole = Candidate(GraphModule(nn.Module(), graph), [torch.ones(2), torch.ones(2)])
    values = {"x": torch.ones(2), "y": torch.ones(2), item.name: torch.ones(2)}
    part = part_of(whole, {added.name}, values)
    assert part is not None
    assert torch.equal(part.module(*part.inputs)[0], torch.full((2,), 2.0))
