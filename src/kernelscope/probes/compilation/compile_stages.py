"""Records the stages of compiled graphs while a recording wants them; missing hooks are reported."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kernelscope.events import Finding
from kernelscope.probes.bus import BUS
from kernelscope.probes.dynamo.cached_lines import PresentLines, traces_of_graph
from kernelscope.probes.gcu.stages import GcuStages
from kernelscope.probes.patching import MovedTarget, Patch, PatchSet
from kernelscope.probes.python_wrappers.compiled_graphs import direction_of
from kernelscope.stages.cached_provenance import provenance_in
from kernelscope.stages.fx_part import fx_part
from kernelscope.stages.records import Compilation, Provenance, Record, Refusal, Stage, TimedConfig
from kernelscope.stages.translation import Translation, translation

from . import stage_cache
from .autotune_times import AutotuneTimes
from .compile_context import CompileContext, current_compile_id, ours
from .compile_failures import incident_of
from .compile_trace import LOGGER, TraceReader
from .fx_passes import FxPasses
from .kernel_provenance import KernelProvenance
from .schedules import Schedules

_COMPILE = "torch._inductor.compile_fx:compile_fx"
_LOWER = "torch._inductor.compile_fx:_InProcessFxCompile.codegen_and_compile"
_ELEMENTS = 32  # of each input that are kept, where they are in the host's memory
_POST_COMPILE = "torch._inductor.output_code:CompiledFxGraph.post_compile"


class CompileStages(PatchSet):
    """The probe for the stages of every graph that is compiled, or loaded from a cache."""

    def __init__(self) -> None:
        self.misfits: list[str] = []
        context = self._context = CompileContext()
        self._trace = TraceReader(context)
        self._passes = FxPasses(context)
        self._schedules = Schedules(context)
        self._provenance = KernelProvenance(context)
        super().__init__(
            Patch(_COMPILE, self._around_compile),
            Patch(_LOWER, self._around_lowering),
            Patch(_POST_COMPILE, self._around_post_compile),
            *self._passes.patches,
            *self._schedules.patches,
            *self._provenance.patches,
            *AutotuneTimes(context).patches,
            *GcuStages(context, self._provenance, self._take_down).patches,
        )
        self._lowered: dict[int, tuple[Any, Compilation | None]] = {}  # by id of the compiled graph

    def install(self) -> None:
        self.misfits = []
        for patch in self.patches:
            try:
                patch.install()
            except MovedTarget as moved:
                self.misfits.append(moved.what)
        logging.getLogger(LOGGER).addHandler(self._trace)

    def remove(self) -> None:
        logging.getLogger(LOGGER).removeHandler(self._trace)
        super().remove()
        self._lowered.clear()
        self._passes.forget()
        self._schedules.forget()
        self._context.forget()
        self._trace.forget()

    # -- Dynamo hands a graph over ---------------------------------------------------------------------

    def _around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_fx(*args: Any, **kwargs: Any) -> Any:
            with ours("recording Dynamo's graph"):
                module, inputs, *_ = *args, *kwargs.values()
                self._take_down(module, inputs)
            return original(*args, **kwargs)

        return compile_fx

    def _take_down(self, module: Any, example_inputs: Any) -> None:
        frame = self._context.frame(current_compile_id())
        if hasattr(module, "graph") and not self._context.text_of(frame.id, "fx"):
            self._context.traces[frame.id] = traces_of_graph(module)
            part = fx_part(module, example_inputs, _ELEMENTS, wait=False)
            self._context.stage(frame, "fx", "json", json.dumps(part))

    # -- a graph is lowered ----------------------------------------------------------------------------

    def _around_lowering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def codegen_and_compile(*args: Any, **kwargs: Any) -> Any:
            graph: Compilation | None = None
            with ours("beginning a graph's stages"):
                _, module, _, _, graph_kwargs = *args, *kwargs.values()
                graph = self._begin(module, graph_kwargs)
            if graph is None:
                return original(*args, **kwargs)
            with self._context.lowering(graph):
                try:
                    result = original(*args, **kwargs)
                except BaseException as error:
                    with ours("noting a failed compilation"):
                        self._fail(graph, error)
                    raise
            with ours("noting a compiled graph"):
                self._lowered[id(result)] = weakref.ref(result), graph
            return result

        return codegen_and_compile

    def _begin(self, module: Any, graph_kwargs: Any) -> Compilation:
        direction = direction_of(SimpleNamespace(fx_kwargs=graph_kwargs))
        number = graph_kwargs.get("graph_id")
        graph = self._context.new_graph(direction, "" if number is None else f"{number}_{direction}")
        self._provenance.number(graph, module)
        return graph

    def _fail(self, graph: Compilation, error: BaseException) -> None:
        self._context.fail(incident_of(graph, error, self._context.records.get(graph.id, ())))
        self._context.end_graph(graph, "failed")

    # -- a graph is ready, or came out of a cache ------------------------------------------------------

    def _around_post_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def post_compile(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            with ours("noting a compiled graph's stages"):
                self._finish(compiled)
            return original(compiled, *args, **kwargs)

        return post_compile

    def _finish(self, compiled: Any) -> None:
        reference, graph = self._lowered.get(id(compiled), (None, None))
        if reference is None or reference() is not compiled:
            self._from_cache(compiled)
        elif graph is not None:
            phases = self._trace.take_phases(graph)
            self._context.stage(graph, "times", "json", json.dumps({"phases": phases}))
            ended = self._context.end_graph(graph, "compiled", compiled._fx_graph_cache_key or "")
            stage_cache.save(self._context, ended)
        self._lowered[id(compiled)] = weakref.ref(compiled), None

    def _from_cache(self, compiled: Any) -> None:
        direction = direction_of(compiled)
        number = compiled.fx_kwargs.get("graph_id")
        graph = self._context.new_graph(direction, "" if number is None else f"{number}_{direction}")
        key = compiled._fx_graph_cache_key or ""
        kept = stage_cache.load(key)
        words = translation(kept[0], self._context.text_of(graph.frame, "dynamo")) if kept else None
        if kept is not None and words is not None:
            self._emit_kept(graph, words, kept[1], kept[2])
        else:
            self._emit_cached(graph, compiled)
        self._context.end_graph(graph, "cached-in-part" if words is None else "cached", key)

    def _emit_kept(
        self, graph: Compilation, words: Translation, of_frame: list[Record], of_graph: list[Record]
    ) -> None:
        """Everything that was seen when an equal graph was compiled."""
        known = {r.name for r in self._context.records.get(graph.frame, ()) if isinstance(r, Stage)}
        for record in of_frame:
            kept = words.of(record)
            if isinstance(kept, Stage) and kept.name not in known:
                self._context.emit(replace(kept, compilation=graph.frame))
        origin = self._context.origin_of(graph.frame)
        for record in map(words.of, of_graph):
            if isinstance(record, Provenance):
                nodes = tuple(n if n.frames else replace(n, frames=origin) for n in record.nodes)
                record = replace(record, nodes=nodes)
            if isinstance(record, Stage | Provenance | Refusal | TimedConfig):
                self._context.emit(replace(record, compilation=graph.id))

    def _emit_cached(self, graph: Compilation, compiled: Any) -> None:
        """What Inductor's own cache has: no passes, no schedule, no reasons of fusion."""
        post_grad = getattr(compiled, "inductor_post_grad_graph_str", None) or ""
        kept = [trace for _, trace in compiled.cache_linemap or () if trace]
        lines = PresentLines(kept, post_grad, self._context.traces.get(graph.frame, ()))
        for name, attribute in (
            ("runnable", "runnable_graph_str"),
            ("post_grad", "inductor_post_grad_graph_str"),
            ("output_code", "source_code"),
        ):
            text = getattr(compiled, attribute, None)
            if text:
                self._context.stage(graph, name, "python", lines.stage(text))
        for provenance in provenance_in(graph.id, getattr(compiled, "inductor_provenance_mapping_str", None)):
            self._context.emit(provenance)
        name = graph.name or current_compile_id()
        BUS.finding(
            Finding(
                "stages-in-part",
                f"graph {name} came out of Inductor's cache, which has only some of its stages; record with "
                "--fresh (fresh=True) to compile it again",
            )
        )
