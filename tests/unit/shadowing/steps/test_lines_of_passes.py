"""Which line a pass got wrong: that of what the wrong output needs, or else of a write that it sees now."""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule

from kernelscope.shadowing.steps.lines import frames_of_change

aten = torch.ops.aten


def graph(*, in_place: bool = False, other: bool = False) -> GraphModule:
    made = Graph()
    x = made.placeholder("x")
    sine = made.call_function(aten.sin.default, (x,))
    put = aten.mul_.Tensor if in_place else aten.mul.Tensor
    doubled = made.call_function(put, (sine, 2))
    cosine = made.call_function(aten.sinh.default if other else aten.cos.default, (sine,))
    for number, node in enumerate((sine, doubled, cosine), 1):
        node.stack_trace = f'  File "/home/me/train.py", line {number}, in step\n    y = x\n'
    made.output((doubled, cosine))
    return GraphModule(torch.nn.Module(), made)


def line(before: GraphModule, after: GraphModule, output: str) -> int:
    return frames_of_change(before, after, output)[0].line


def test_of_what_the_output_needs() -> None:
    assert line(graph(), graph(in_place=True, other=True), "output 1") == 3
    assert line(graph(), graph(in_place=True, other=True), "output 0") == 2


def test_of_a_write_that_the_output_does_not_need() -> None:
    assert line(graph(), graph(in_place=True), "output 1") == 2
