"""A CUDA graph that Python destroys while another is captured: a recording does not make that happen."""

from __future__ import annotations

import gc

import torch

import kernelscope


def test_python_collects_nothing_while_a_recorded_graph_is_captured() -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(lambda x: (x @ x).relu().cumsum(1).softmax(-1))
    f(x)
    collections: list[str] = []

    def seen(phase: str, about: dict[str, int]) -> None:
        collections.append(phase)

    def capture() -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            collections.clear()
            kept.append(f(x))
            found.append(len(collections))
        return graph

    kept: list[object] = []
    found: list[int] = []
    thresholds = gc.get_threshold()
    gc.callbacks.append(seen)
    try:
        with kernelscope.record(values="hash") as run:
            old = [capture()]
            old.append(old)  # type: ignore[arg-type]
            gc.set_threshold(1)  # whatever is made makes Python collect
            del old
            graph = capture()
            assert gc.isenabled()
            collections.clear()
            graph.replay()
            assert collections, "it collects again"
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(seen)
    assert found == [0, 0]
    assert run.calls
    assert all(c.replay == 0 and c.post_hashes for c in run.calls)
