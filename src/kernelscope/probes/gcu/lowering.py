"""What the gcu backend knew about a graph when it compiled it: which buffer holds the value of which node."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "kernelscope.gcu.backend:Inner.compile"


class GcuLowerings(PatchSet):
    """The probe: tells of each graph that is compiled with `backend="gcu"` while it is installed."""

    def __init__(self, emit: Callable[[LoweredGraph], None]) -> None:
        self._emit = emit
        super().__init__(Patch(_COMPILE, self._around))

    def _around(self, original: Any) -> Any:
        def compile_graph(inner: Any, module: Any, direction: str, done: Any) -> Any:
            compiled = original(inner, module, direction, done)
            with contained("reading what lowering knows"):
                self._emit(_lowered(compiled, done))
            return compiled

        return compile_graph


def _lowered(compiled: Any, done: Any) -> LoweredGraph:
    graph = LoweredGraph(compiled.path, done.module, {}, {}, {}, {}, inputs={})
    assert graph.inputs is not None
    try:
        lowered = done.lowered
        fx = {node.name: node for node in done.module.graph.nodes}
        for node in fx.values():
            if node.op == "placeholder":
                graph.inputs[lowered.renamed.get(node.name, node.name)] = node
        for step in compiled.steps:
            if getattr(step, "is_view", False) and step.fx:
                graph.views[compiled.names[step.register]] = step.fx[0]
        for made in lowered.dag.nodes:
            nodes = [fx[name] for name in made.fx if _holds(lowered, made, name)]
            if nodes:
                graph.nodes[made.output] = nodes[-1]
                graph.same[nodes[-1]] = tuple(nodes[:-1])
    except Exception:  # what it cannot say is not checked, and that is told
        graph.problems.append(traceback.format_exc(limit=-2).strip())
    return graph


def _holds(lowered: Any, made: Any, name: str) -> bool:
    """Whether what a node of the internal graph computes is an FX node's value, not a step towards it."""
    if made.kind == "aten":
        return True
    view = lowered.views.get(name)
    return view is not None and lowered.dag.same.get(view.buffer, view.buffer) == made.output
