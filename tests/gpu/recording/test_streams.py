"""Compiled functions that use several streams: each call is recorded on the stream that it ran on."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import kernelscope

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch._inductor.stream_constants") is None,
    reason="this torch compiles no stream blocks",
)


def test_each_call_has_the_stream_of_its_block() -> None:
    side = torch.cuda.Stream()

    def on_two_streams(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        here = torch.cuda.current_stream()
        y = x.relu()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            z = y.sin() @ w
        here.wait_stream(side)
        return z + y.cos()

    torch._dynamo.reset()
    x, w = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    compiled = torch.compile(on_two_streams)
    compiled(x, w)
    with kernelscope.record() as run:
        for _ in range(3):
            result = compiled(x, w)
        torch.cuda.synchronize()
    assert torch.allclose(result, on_two_streams(x, w), atol=1e-2)
    if not any("with stream1:" in graph.source for graph in run.graphs):
        pytest.skip("this torch breaks the graph at the stream")
    executions: dict[int, list[tuple[str, int]]] = {}
    for call in run.calls:
        if any(arg.tensor is not None for arg in call.arguments):
            executions.setdefault(call.graph_call, []).append((call.kernel_name, call.stream))
    first, *others = executions.values()
    assert {stream for _, stream in first} == {side.cuda_stream, torch.cuda.current_stream().cuda_stream}
    assert [stream for name, stream in first if "mm" in name] == [side.cuda_stream]
    assert others == [first, first]
    assert not run.findings
