"""A CUDA graph that Python destroys while another is captured: a recording does not make that happen."""

from __future__ import annotations

import gc

import torch

import kernelscope


def test_an_old_graph_among_the_garbage_does_not_spoil_a_capture() -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(lambda x: (x @ x).relu().cumsum(1).softmax(-1))
    f(x)
    kept: list[object] = []

    def capture() -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept.append(f(x))
        return graph

    thresholds = gc.get_threshold()
    with kernelscope.record(values="hash") as run:
        gc.collect()
        cycle: list[object] = [capture()]
        cycle.append(cycle)
        del cycle
        gc.set_threshold(1)  # what is made in the capture lets Python collect at once
        try:
            graph = capture()
            assert gc.isenabled()
        finally:
            gc.set_threshold(*thresholds)
        graph.replay()
    assert run.calls
    assert all(c.replay == 0 and c.post_hashes for c in run.calls)
