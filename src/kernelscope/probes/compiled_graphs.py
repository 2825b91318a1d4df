"""Inductor's graphs: every launch of their Python wrappers, also of graphs compiled before the recording.

One hook sees them all: a compiled graph is called through `CompiledFxGraph.__call__`, cold or from a cache,
forward and backward. On first sight the functions of its wrapper module get code in which each launch calls
a hook; closing the last recording puts the original code objects back.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from ..events import Direction, Finding, Graph
from .bus import BUS
from .origins import LineMap
from .patching import Patch
from .wrapper_launches import WrapperLaunches, is_launch
from .wrapper_source import read_wrapper

_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"
_POST_COMPILE = "torch._inductor.output_code:CompiledFxGraph.post_compile"


class _HookedWrapper:
    """One wrapper module while its launches are hooked."""

    def __init__(self, namespace: dict[str, Any], aot_name: str) -> None:
        self.namespace = namespace
        self.aot_name = aot_name
        self.replaced: list[tuple[FunctionType, CodeType]] = []
        self.added: list[str] = []
        self.sub_kernels: list[Any] = []

    def restore(self) -> None:
        for function, code in self.replaced:
            function.__code__ = code
        for name in self.added:
            self.namespace.pop(name, None)
        for kernel in self.sub_kernels:
            vars(kernel).pop("run", None)


class CompiledGraphs:
    """The probe for Inductor's compiled graphs."""

    def __init__(self) -> None:
        self._patches = [Patch(_CALL, self._around_call), Patch(_POST_COMPILE, self._around_post_compile)]
        self._hooked: dict[int, _HookedWrapper] = {}  # by id of the module's namespace, which the value keeps
        self._graphs: dict[
            int, tuple[Any, Graph | None]
        ] = {}  # by id of the CompiledFxGraph, with a weak reference
        self._compile_ids: dict[int, str] = {}
        self._ids = itertools.count()
        self._lock = threading.Lock()

    def install(self) -> None:
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        for patch in reversed(self._patches):
            patch.remove()
        for wrapper in self._hooked.values():
            wrapper.restore()
        self._hooked.clear()
        self._graphs.clear()

    def _around_call(self, original: Any) -> Any:
        here = BUS.here

        def call(compiled: Any, inputs: Any) -> Any:
            if here.muted:
                return original(compiled, inputs)
            graph = self._graph_of(compiled)
            before = here.graph_call, here.in_graph, here.backward
            here.graph_call = BUS.graph_call(graph) if graph is not None else -1
            here.in_graph += 1
            here.backward = graph is not None and graph.direction == "backward"
            try:
                return original(compiled, inputs)
            finally:
                here.graph_call, here.in_graph, here.backward = before

        return call

    def _around_post_compile(self, original: Any) -> Any:
        from torch._guards import CompileContext

        def post_compile(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            key = id(compiled)
            self._compile_ids[key] = str(CompileContext.current_compile_id() or "")
            weakref.finalize(compiled, self._compile_ids.pop, key, None)
            return original(compiled, *args, **kwargs)

        return post_compile

    def _graph_of(self, compiled: Any) -> Graph | None:
        key = id(compiled)
        known = self._graphs.get(key)
        if known is not None and known[0]() is compiled:
            return known[1]
        with self._lock:
            graph = self._hook(compiled)
            self._graphs[key] = (weakref.ref(compiled), graph)
        return graph

    def _hook(self, compiled: Any) -> Graph | None:
        namespace = _namespace_of(compiled)
        if namespace is None:
            name = compiled._fx_graph_cache_key or "?"
            BUS.finding(
                Finding(
                    "unseen-graph",
                    f"a compiled graph (cache key {name}) has no Python wrapper, so its launches are not "
                    "recorded (cpp_wrapper and AOTInductor run without Python between kernels)",
                )
            )
            return None
        path = str(namespace.get("__file__", "<wrapper>"))
        wrapper = self._hooked.get(id(namespace)) or self._hook_wrapper(compiled, namespace, path)
        return Graph(
            id=next(self._ids),
            direction=_direction(compiled),
            name=wrapper.aot_name,
            compile_id=self._compile_ids.get(id(compiled), ""),
            cache_key=compiled._fx_graph_cache_key or "",
            source=compiled.source_code,
            path=path,
        )

    def _hook_wrapper(self, compiled: Any, namespace: dict[str, Any], path: str) -> _HookedWrapper:
        text = read_wrapper(
            compiled.source_code, path, lambda called, kernels: is_launch(called, namespace, kernels)
        )
        launches = WrapperLaunches(text, path, namespace, LineMap(compiled.cache_linemap))
        hooked = self._hooked[id(namespace)] = _HookedWrapper(namespace, text.aot_name)
        for callsite in text.callsites:
            namespace[callsite.hook] = launches.hook(callsite)
            hooked.added.append(callsite.hook)
        hooked.sub_kernels = launches.sub_kernels
        for function in _functions(namespace):
            code = text.codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None:
                hooked.replaced.append((function, function.__code__))
                function.__code__ = code
        return hooked


def _namespace_of(compiled: Any) -> dict[str, Any] | None:
    """The globals of the wrapper module that a compiled graph runs."""
    runner = getattr(compiled, "compiled_fn_runner", None)  # also there when CUDA graphs wrap the callable
    function = getattr(type(runner), "call", None) if runner is not None else None
    if function is None:
        function = getattr(compiled.current_callable, "__func__", compiled.current_callable)
    namespace = getattr(function, "__globals__", None)
    return namespace if namespace is not None and "async_compile" in compiled.source_code else None


def _functions(namespace: dict[str, Any]) -> Iterator[FunctionType]:
    for value in list(namespace.values()):
        if isinstance(value, FunctionType) and value.__globals__ is namespace:
            yield value
        elif isinstance(value, type) and value.__module__ == namespace.get("__name__"):
            yield from (m for m in vars(value).values() if isinstance(m, FunctionType))


def _direction(compiled: Any) -> Direction:
    kwargs = compiled.fx_kwargs
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"
