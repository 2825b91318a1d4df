"""How each of Inductor's compiled graphs was made: in which compilation, and of which lines."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

from .cached_lines import PresentLines, traces_of_graph

_COMPILE = "torch._inductor.compile_fx:compile_fx"
_INIT = "torch._inductor.output_code:CompiledFxGraph.__init__"
_POST_COMPILE = "torch._inductor.output_code:CompiledFxGraph.post_compile"
_Linemap = Sequence[tuple[int, str | None]]


class MadeGraphs(PatchSet):
    """The probe. What it learns stays until the graph is gone: the next recording wants it too."""

    def __init__(self) -> None:
        super().__init__(
            Patch(_COMPILE, self._around_compile),
            Patch(_INIT, self._around_init),
            Patch(_POST_COMPILE, self._around_post_compile),
        )
        # By id of the compiled graph.
        self._compile_ids: dict[int, str] = {}
        self._compiled_here: set[int] = set()
        self._present: dict[int, tuple[str, ...]] = {}  # of those out of a cache: what Dynamo traced
        self._traced: dict[str, tuple[str, ...]] = {}  # by compile id

    def forget(self) -> None:
        self._traced.clear()

    def compile_id(self, compiled: Any) -> str:
        return self._compile_ids.get(id(compiled), "")

    def linemap(self, compiled: Any) -> _Linemap:
        """The wrapper's lines, with the stacks of this program as far as they are known."""
        kept: _Linemap = compiled.cache_linemap or []
        present = self._present.get(id(compiled))
        if present is None:
            return kept
        text = getattr(compiled, "inductor_post_grad_graph_str", None) or ""
        lines = PresentLines([trace for _, trace in kept if trace], text, present)
        return [(line, lines.trace(trace) if trace else trace) for line, trace in kept]

    def _around_compile(self, original: Any) -> Any:
        @functools.wraps(original)
        def compile_fx(model: Any, *args: Any, **kwargs: Any) -> Any:
            compile_id = _current_compile_id()
            with contained("reading the lines of Dynamo's graph"):
                if hasattr(model, "graph"):
                    self._traced[compile_id] = traces_of_graph(model)
            try:
                return original(model, *args, **kwargs)
            finally:
                if not compile_id:  # a graph that was compiled without Dynamo: the next one is another
                    self._traced.pop(compile_id, None)

        return compile_fx

    def _around_init(self, original: Any) -> Any:
        def init(compiled: Any, *args: Any, **kwargs: Any) -> None:
            original(compiled, *args, **kwargs)
            self._compiled_here.add(id(compiled))  # one out of a cache is unpickled
            weakref.finalize(compiled, self._compiled_here.discard, id(compiled))

        return init

    def _around_post_compile(self, original: Any) -> Any:
        def post_compile(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            key, compile_id = id(compiled), _current_compile_id()
            self._compile_ids[key] = compile_id
            weakref.finalize(compiled, self._forget_graph, key)
            if key not in self._compiled_here and compile_id in self._traced:
                self._present[key] = self._traced[compile_id]
            return original(compiled, *args, **kwargs)

        return post_compile

    def _forget_graph(self, key: int) -> None:
        self._compile_ids.pop(key, None)
        self._present.pop(key, None)


def _current_compile_id() -> str:
    from torch._guards import CompileContext

    return str(CompileContext.current_compile_id() or "")
