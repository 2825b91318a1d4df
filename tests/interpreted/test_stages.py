"""Stages of graphs with Triton kernels: each launch leads to its nodes and lines, forward and backward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support import stage_checks

import kernelscope

pytestmark = pytest.mark.usefixtures("inductor_triton")


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    scaled = torch.relu(x * 2 + y)
    return scaled.sum(-1)


def test_every_kernel_leads_to_its_nodes_and_lines() -> None:
    torch._dynamo.reset()
    x, y = torch.randn(7, 33, requires_grad=True), torch.randn(7, 33)
    with kernelscope.record(stages=True) as run:
        torch.compile(program)(x, y).sum().backward()
    assert [(g.direction, g.made) for g in run.stages] == [("forward", "compiled"), ("backward", "compiled")]
    for graph in run.stages:
        assert {k.language for k in graph.kernels} == {"triton"}
        stage_checks.check_graph(graph, Path(__file__))
    stage_checks.check_calls(run, Path(__file__))
    assert not run.findings
