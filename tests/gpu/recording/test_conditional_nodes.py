"""Conditional nodes of CUDA graphs: what runs in them is known on the GPU only."""

from __future__ import annotations

import pytest
import torch

import kernelscope


@pytest.mark.skipif(
    not hasattr(torch.cuda.CUDAGraph, "begin_capture_to_if_node"),
    reason="this torch has no conditional nodes",
)
def test_kernels_in_conditional_nodes_are_a_finding() -> None:
    from torch._higher_order_ops.cudagraph_conditional_nodes import CUDAGraphCaptureControlFlowOpDispatchMode

    def choose(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1

    x, p = torch.randn(64, device="cuda"), torch.tensor(True, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with kernelscope.record(ops="all", values="hash") as run:
        with torch.cuda.graph(graph), CUDAGraphCaptureControlFlowOpDispatchMode():
            kept = choose(p, x)
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(kept, x.sin() + 1)
    names = [call.kernel_name for call in run.calls if call.replay >= 0]
    assert "aten.add.Tensor" in names
    assert not {"aten.sin.default", "aten.cos.default"} & set(names)
    assert any("conditional nodes" in f.message for f in run.findings)
