"""A list of tensors that an operator writes to and does not return: the parameters of an optimizer's step."""

from __future__ import annotations

import operator

import torch
from tests.integration.faults.planting import Fault, assert_named, in_kernel, look_for
from torch import nn
from torch.fx import Graph, GraphModule

import kernelscope
from kernelscope.reduction.candidates import Candidate, part_of


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


def test_a_wrong_constant_is_named() -> None:
    wrong = in_kernel(r"float>\(-0\.1\)", "float>(-0.11)", count=2)
    fault = Fault("not returned", "written list", step, wrong, "=out_ptr0", phase="")
    result, canary = look_for(fault)
    assert_named(fault, result, canary)


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
