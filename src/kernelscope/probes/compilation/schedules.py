"""Inductor's scheduler: its nodes before and after fusion, and every fusion that it refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kernelscope.probes.patching import Patch
from kernelscope.stages.records import Refusal

from .compile_context import CompileContext, ours

_SCHEDULER = "torch._inductor.scheduler:"


class Schedules:
    """Watches one schedule after the other; a subgraph has one of its own."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self._before: dict[int, list[Any]] = {}  # by scheduler: its nodes before fusion
        self._refused: dict[int, Counter[tuple[str, str, str]]] = {}  # by graph
        self._texts: dict[tuple[int, str], str] = {}  # by graph and stage: what the bodies in it are added to
        self._dags: dict[int, dict[str, Any]] = {}  # by graph
        self.patches = [
            Patch(f"{_SCHEDULER}Scheduler.fuse_nodes", self._around_fusion),
            Patch(f"{_SCHEDULER}Scheduler.__init__", self._around_scheduling),
            Patch(f"{_SCHEDULER}WhyNoFuse.__call__", self._around_refusal),
        ]

    def forget(self) -> None:
        self._before.clear()
        self._refused.clear()
        self._texts.clear()
        self._dags.clear()

    def _around_fusion(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fuse_nodes(scheduler: Any, nodes: Any) -> Any:
            with ours("looking at a schedule before fusion"):
                self._before[id(scheduler)] = list(nodes)
                self._stage("schedule_before", nodes)
            return original(scheduler, nodes)

        return fuse_nodes

    def _around_scheduling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(scheduler: Any, nodes: Any) -> Any:
            try:
                original(scheduler, nodes)
            finally:
                self._emit_refusals()
            with ours("looking at a schedule"):
                before = self._before.pop(id(scheduler), [])
                self._stage("schedule", scheduler.nodes)
                graph = self._context.graph
                if graph is not None:
                    body, made = _body(), dag(scheduler, before)
                    if body and graph.id in self._dags:
                        made = _with_body(self._dags[graph.id], body, made)
                    self._dags[graph.id] = made
                    self._context.stage(graph, "dag", "json", json.dumps(made))

        return __init__

    def _around_refusal(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(why: Any, reason: str, *args: Any) -> Any:
            result = original(why, reason, *args)
            graph = self._context.graph
            if graph is not None:
                with ours("noting a refused fusion"):
                    refused = self._refused.setdefault(graph.id, Counter())
                    refused[why.name1, why.name2, reason % args if args else reason] += 1
            return result

        return __call__

    def _emit_refusals(self) -> None:
        graph = self._context.graph
        if graph is not None:
            for (first, second, reason), times in self._refused.pop(graph.id, Counter()).items():
                self._context.emit(Refusal(graph.id, first, second, reason, times))

    def _stage(self, name: str, nodes: Sequence[Any]) -> None:
        graph = self._context.graph
        if graph is not None:
            text = "\n\n".join(node.debug_str() for node in nodes)
            if _body() and (around := self._texts.get((graph.id, name))):
                text = f"{around}\n\n{text}"
            self._texts[graph.id, name] = text
            self._context.stage(graph, name, "text", text)


def _body() -> str:
    """The name of the branch or of the loop's body that is being scheduled, if it is one."""
    from torch._inductor.virtualized import V

    return str(getattr(V.graph, "name", None) or "")


# -- as the schema of a graph's document has it --------------------------------------------------------


def dag(scheduler: Any, before: list[Any]) -> dict[str, Any]:
    """Buffers, the nodes before fusion with the edges between them, and the groups that were fused."""
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    writer = {out.get_name(): node.get_name() for node in before for out in node.get_outputs()}
    nodes, edges = [], []
    for node in before:
        reads = list(dict.fromkeys(dep.name for dep in node.read_writes.reads))
        edges += [[writer[name], node.get_name()] for name in reads if name in writer]
        nodes.append(_node(node, reads))
    outputs = [name for name in graph.get_output_names() if name not in ("None", "nan")]
    return {
        "inputs": [_buffer(name, value) for name, value in graph.graph_inputs.items()],
        "outputs": [_buffer(name, graph.try_get_buffer(name)) for name in outputs],
        "buffers": [_buffer(name, buffer.node) for name, buffer in scheduler.name_to_buf.items()],
        "nodes": nodes,
        "edges": edges,
        "groups": [[each.get_name() for each in node.get_nodes()] for node in scheduler.nodes],
    }


def _with_body(around: dict[str, Any], name: str, body: dict[str, Any]) -> dict[str, Any]:
    """A body's buffers and nodes have names that nothing else in the graph has; its inputs are its own."""
    made = {key: [*around[key], *body[key]] for key in ("nodes", "edges", "groups")}
    made["buffers"] = [*around["buffers"], *(each | {"body": name} for each in body["buffers"])]
    return around | made | {"bodies": around.get("bodies", {}) | {name: body["inputs"]}}


def _node(node: Any, reads: list[str]) -> dict[str, Any]:
    ir = node.node
    origins = sorted(origin.name for origin in ir.get_origins()) if ir is not None else []
    metadata: dict[str, Any] = {"fx": origins, "scheduler": type(node).__name__}
    kernel = getattr(ir, "python_kernel_name", None)
    if kernel:
        metadata["kernel"] = str(kernel)
    data = getattr(ir, "data", None)
    return {
        "name": node.get_name(),
        "inputs": reads,
        "outputs": [out.get_name() for out in node.get_outputs()],
        "metadata": metadata,
        "type": type(data if data is not None else ir).__name__,
    }


def _buffer(name: str, value: Any) -> dict[str, Any]:
    """A buffer, a symbolic size among the inputs, or what an operator that returns nothing has for one."""
    layout = _layout(value)
    if layout is None:
        scope = "none" if type(getattr(value, "layout", None)).__name__ == "NoneLayout" else "symbol"
        return {"name": name, "shape": [], "dtype": type(value).__name__, "scope": scope}
    made = {
        "name": name,
        "shape": [_size(s) for s in layout.size],
        "stride": [_size(s) for s in layout.stride],
        "dtype": str(layout.dtype),
        "scope": str(layout.device),
    }
    node = value.get_origin_node() if hasattr(value, "get_origin_node") else None
    return made if node is None else made | {"node": str(node.name)}


def _layout(value: Any) -> Any:
    for _ in range(4):  # TensorBox, StorageBox, InputBuffer
        layout = getattr(value, "layout", None)
        if layout is not None and all(hasattr(layout, name) for name in ("size", "stride", "dtype")):
            return layout
        value = getattr(value, "data", None)
    return None


def _size(size: Any) -> int | str:
    return int(size) if getattr(size, "is_number", isinstance(size, int)) else str(size)
