"""Which buffer holds the value of which FX node; known when a graph is lowered, not from a cache."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "torch._inductor.graph:GraphLowering._compile_to_module"


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """One graph as it was lowered; nodes are those of `module`."""

    path: str  # of the wrapper's source
    module: Any  # the GraphModule that was lowered: after all FX passes
    nodes: dict[str, Any]  # by buffer: the node whose value it holds once all of its writes are done
    origins: dict[str, tuple[Any, ...]]  # by buffer: all nodes that went into it
    mutates: dict[str, str]  # by buffer without memory of its own: the buffer or input that it writes to
    parts: dict[str, tuple[str, ...]]  # by buffer: those that are slices of it (aten.cat)
    inputs: dict[str, Any] | None = None  # by variable: the placeholder; None: each has its own name
    views: dict[str, Any] = field(default_factory=dict)  # by variable that is made without a launch
    same: dict[Any, tuple[Any, ...]] = field(default_factory=dict)  # by node: others with the same value
    inner: dict[str, LoweredGraph] = field(default_factory=dict)  # by function: bodies of branches and loops
    problems: list[str] = field(default_factory=list)


class Lowerings(PatchSet):
    """The probe: tells of each graph that is lowered while it is installed."""

    def __init__(self, emit: Callable[[LoweredGraph], None]) -> None:
        self._emit = emit
        super().__init__(Patch(_COMPILE, self._around))

    def _around(self, original: Any) -> Any:
        def compile_to_module(lowering: Any) -> Any:
            module = original(lowering)
            self._emit(_lowered(lowering, str(module.__file__)))
            return module

        return compile_to_module


def _lowered(lowering: Any, path: str) -> LoweredGraph:
    graph = LoweredGraph(path, lowering.orig_gm, {}, {}, {}, {})
    try:
        known = {node.name: node for node in graph.module.graph.nodes}
        for name, buffer in lowering.name_to_buffer.items():
            origin = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
            if origin is not None and origin.name in known:
                graph.nodes[name] = known[origin.name]
            found = getattr(buffer, "origins", None) or ()
            graph.origins[name] = tuple(known[n.name] for n in found if n.name in known)
            if type(buffer).__name__ == "ConcatKernel":
                graph.parts[name] = tuple(each.get_name() for each in buffer.inputs)
        graph.mutates.update(lowering.scheduler.mutation_real_name)
        _add_bodies(graph, lowering)
    except Exception:  # private API: what it cannot say is not checked, and that is told
        graph.problems.append(traceback.format_exc(limit=-2).strip())
    return graph


def _add_bodies(graph: LoweredGraph, lowering: Any) -> None:
    """Branches and bodies of loops: graphs of their own, that the same wrapper has as functions."""
    from torch._inductor.ir import MultiOutput, Subgraph

    results: set[str] = set()
    for operation in lowering.operations:
        parts = [part for part in vars(operation).values() if isinstance(part, Subgraph)]
        bodies = [part.graph for part in parts if part.graph is not None and part.graph.name]
        if bodies and hasattr(operation, "outputs"):
            results.add(operation.get_name())
        for body in bodies:
            if body.name not in graph.inner and getattr(body, "scheduler", None) is not None:
                inner = _lowered(body, graph.path)
                inputs = [node for node in inner.module.graph.nodes if node.op == "placeholder"]
                names = dict(zip(body.graph_input_names, inputs, strict=True))
                graph.inner[body.name] = replace(inner, inputs=names)
                graph.problems.extend(inner.problems)
    for name, buffer in lowering.name_to_buffer.items():
        maker: Any = buffer.inputs[0] if isinstance(buffer, MultiOutput) else None
        if maker is not None and maker.get_name() in results and name in graph.nodes:
            graph.views[name] = graph.nodes[name]
