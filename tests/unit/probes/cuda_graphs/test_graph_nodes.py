"""Nodes of a CUDA graph that was captured before a recording: what its replays are recorded as."""

from __future__ import annotations

from kernelscope.probes.cuda_graphs.graph_nodes import GraphNode, capture_of
from kernelscope.recording.cuda_graphs import captured_graph


def test_each_node_is_a_launch_without_arguments() -> None:
    nodes = [
        GraphNode("my_kernel", (3, 1, 1), (128, 1, 1), 16),
        GraphNode("memset"),
        GraphNode("my_kernel", (4, 1, 1)),
    ]
    capture = capture_of(nodes, "cuda:0")
    graph = captured_graph(capture, object(), lambda kernel: True)
    sites = [launch.site for launch in graph.launches]
    assert [(s.kernel.name, s.grid, s.device) for s in sites] == [
        ("my_kernel", (3, 1, 1), "cuda:0"),
        ("memset", None, "cuda:0"),
        ("my_kernel", (4, 1, 1), "cuda:0"),
    ]
    assert sites[0].kernel is sites[2].kernel
    assert sites[0].config == {"block": (128, 1, 1), "shared": 16}
    assert not any(s.args for s in sites)
    assert capture.nodes == 3
    only = captured_graph(capture, object(), lambda kernel: kernel.name == "memset")
    assert len(only.launches) == 1
