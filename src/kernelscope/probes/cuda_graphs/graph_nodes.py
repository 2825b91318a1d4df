"""The nodes of a CUDA graph, of which torch keeps the description: what its replays execute."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Capture, Template

_COPIES = {"MEMCPY": "memcpy", "MEMSET": "memset"}
_WORK = _COPIES | {"HOST": "host function", "CONDITIONAL": "conditional node"}


class NodesUnread(Exception):
    """Why the nodes of a graph cannot be read."""


class GraphNode(NamedTuple):
    """One node that does something: a kernel with its grid, or a copy, fill, function or condition."""

    name: str
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    shared: int = 0  # bytes of dynamic shared memory


def captured_before(graph: Any) -> Capture:
    """A capture that holds the nodes of this graph, in the order in which they were captured."""
    nodes = list(_nodes(graph))  # first: it says why there are none
    return capture_of(nodes, f"cuda:{torch._C._cuda_getDevice()}")


def capture_of(nodes: Iterable[GraphNode], device: str) -> Capture:
    capture = Capture()
    for node in nodes:
        kernel = BUS.kernel(node.name, "cuda", "user")
        config = {"block": node.block, "shared": node.shared} if node.block is not None else {}
        site = BUS.site(kernel, (), (), grid=node.grid, config=config)
        capture.nodes += node.grid is not None or node.name in _COPIES.values()
        capture.templates.append(Template.of_node(replace(site, device=device), BUS.phase()))
    return capture


def _nodes(graph: Any) -> Iterator[GraphNode]:
    if not hasattr(graph, "raw_cuda_graph"):
        raise NodesUnread(f"a {type(graph).__name__} does not give access to its nodes")
    try:
        raw = graph.raw_cuda_graph()
    except RuntimeError:
        raise NodesUnread("it was made without keep_graph=True") from None
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise NodesUnread("the package cuda-bindings is not installed") from None
    try:
        yield from _nodes_in(driver.CUgraph(raw), driver)
    except RuntimeError as error:
        raise NodesUnread(str(error)) from None


def _nodes_in(graph: Any, driver: Any) -> Iterator[GraphNode]:
    def told(result: tuple[Any, ...]) -> Any:
        if result[0] != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the driver says {result[0].name}")
        return result[1] if len(result) == 2 else result[1:]

    _, count = told(driver.cuGraphGetNodes(graph))
    nodes, _ = told(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    for node in nodes:
        kind = told(driver.cuGraphNodeGetType(node)).name.removeprefix("CU_GRAPH_NODE_TYPE_")
        if kind == "GRAPH":
            yield from _nodes_in(told(driver.cuGraphChildGraphNodeGetGraph(node)), driver)
        elif kind == "KERNEL":
            given = told(driver.cuGraphKernelNodeGetParams(node))
            if int(given.func):
                name = told(driver.cuFuncGetName(given.func))
            else:
                name = told(driver.cuKernelGetName(given.kern))
            yield GraphNode(
                _unmangled(name.decode()),
                (given.gridDimX, given.gridDimY, given.gridDimZ),
                (given.blockDimX, given.blockDimY, given.blockDimZ),
                given.sharedMemBytes,
            )
        elif kind in _WORK:
            yield GraphNode(_WORK[kind])


def _unmangled(name: str) -> str:
    """As profilers show it; older versions of torch have no function for that."""
    return str(getattr(torch._C, "_demangle", str)(name))
