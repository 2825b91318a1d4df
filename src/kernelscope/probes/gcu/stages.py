"""The stages of graphs compiled with `backend="gcu"`, which makes them anew even if the library is cached."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from kernelscope.probes.compilation.compile_context import CompileContext, current_compile_id, ours
from kernelscope.probes.compilation.compile_failures import compiler_error, first_line, marked, marked_in
from kernelscope.probes.compilation.fx_passes import changes
from kernelscope.probes.compilation.kernel_provenance import KernelProvenance
from kernelscope.probes.operators import operator_name
from kernelscope.probes.origins import frames_of_trace
from kernelscope.probes.patching import Patch
from kernelscope.stages.records import Compilation, Incident, Made, Provenance, Refusal

_INNER = "kernelscope.gcu.backend:Inner"


class GcuStages:
    """Hooks where that backend gets Dynamo's graph, and where it compiles one of the graphs below it."""

    def __init__(
        self,
        context: CompileContext,
        provenance: KernelProvenance,
        take_down: Callable[[Any, Any], None],
    ) -> None:
        self._context = context
        self._provenance = provenance
        self._take_down = take_down
        self.patches = [
            Patch(f"{_INNER}.begin", self._around_begin),
            Patch(f"{_INNER}.compile", self._around_compile),
        ]

    def _around_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(inner: Any, module: Any, inputs: Any) -> Any:
            with ours("recording Dynamo's graph"):
                self._take_down(module, inputs)
                frame = self._context.frame(current_compile_id())
                names = self._context.pre_grad.setdefault(frame.id, set())
                names.update(node.name for node in module.graph.nodes)
            return original(inner, module, inputs)

        return begin

    def _around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_graph(inner: Any, module: Any, direction: str, done: Any) -> Any:
            graph: Compilation | None = None
            with ours("beginning a graph's stages"):
                graph = self._context.new_graph(direction)
                self._provenance.number(graph, module)
            if graph is None:
                return original(inner, module, direction, done)
            start = monotonic_ns()
            with self._context.lowering(graph):
                try:
                    result = original(inner, module, direction, done)
                except BaseException as error:
                    with ours("noting a failed compilation"):
                        self._emit(graph, done, start)
                        self._context.fail(_incident(graph, done, error))
                        self._context.end_graph(graph, "failed", done.name, done.name)
                    raise
                with ours("noting a compiled graph's stages"):
                    self._emit(graph, done, start)
                    made: Made = "cached" if done.is_cached else "compiled"
                    self._context.end_graph(graph, made, done.name, done.name)
                return result

        return compile_graph

    # -- what there is to emit -------------------------------------------------------------------------

    def _emit(self, graph: Compilation, done: Any, start: int) -> None:
        from kernelscope.gcu.execution.graph_code import code_of
        from kernelscope.gcu.trace_document import document

        made = document(done, {}, ())
        stage = self._context.stage
        self._emit_passes(graph, done, start)
        if made["dag"] is not None:
            stage(graph, "dag", "json", json.dumps(made["dag"]))
        if made["code"] is not None:
            stage(graph, "choreo", "choreo", made["code"]["text"])
            stage(graph, "host_wrapper", "cpp", made["wrapper"]["text"])
            made["code"]["text"] = made["wrapper"]["text"] = ""  # they are stages of their own
        if done.graph is not None:
            stage(graph, "output_code", "python", code_of(done.graph).text)
            self._emit_provenance(graph, done.graph)
        made |= {"fx": None, "dag": None, "passes": []}
        stage(graph, "gcu", "json", json.dumps(made))
        stage(graph, "times", "json", json.dumps({"phases": done.seconds}))

    def _emit_passes(self, graph: Compilation, done: Any, start: int) -> None:
        before = ""
        for name, text in done.passes:
            if name == "lower":
                self._context.stage(graph, "lowered", "python", text, start)
            elif name == "fuse":
                self._context.stage(graph, "fused", "python", text, start)
            elif text != before:
                self._context.stage(graph, f"pass gcu_passes/{name}", "diff", changes(before, text), start)
            before = text
        for first, second, reason in done.lowered.dag.refusals if done.lowered is not None else ():
            self._context.emit(Refusal(graph.id, first, second, reason))

    def _emit_provenance(self, graph: Compilation, compiled: Any) -> None:
        from kernelscope.gcu.execution.graph_code import line_of

        for number, step in enumerate(compiled.steps):
            if not line_of(step):
                continue  # it launches nothing
            kernel = getattr(step, "kernel", None)
            name = kernel.name if kernel is not None else operator_name(step.target)
            buffers = tuple(kernel.outputs) if kernel is not None else (compiled.names[step.register],)
            nodes = tuple(self._provenance.origin(graph, node) for node in step.fx)
            self._context.emit(Provenance(graph.id, name, number, buffers, nodes))


def _incident(graph: Compilation, done: Any, error: BaseException) -> Incident:
    """Why a graph was not compiled, with the line of the generated code where g++ has one."""
    reason, source, trace = f"{type(error).__name__}: {first_line(error)}", "", ""
    found = compiler_error(str(error))
    if found is not None and done.translation is not None:
        # The file may be gone: what is compiled for the cache is compiled in a folder that does not stay.
        source = marked(found.file, found.line, found.column) or marked_in(
            done.translation.cpp, found.line, found.column
        )
        reason = f"{done.name}.cpp, line {found.line}: {found.what}"
    if done.failed_stage == "strict" and done.lowered is not None:
        trace = next((f.origin for f in done.lowered.fallbacks if f.origin), "")
    frames = frames_of_trace(trace)
    return Incident(
        "failure", graph.id, graph.compile_id, reason, frames, str(error), source, done.failed_stage
    )
