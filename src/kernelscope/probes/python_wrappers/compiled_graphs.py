"""Inductor's graphs: all are called through `CompiledFxGraph.__call__`, where their wrapper is hooked."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from operator import itemgetter
from types import CodeType
from typing import Any

import torch

from kernelscope.events import Direction, Finding, Frame, Graph
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.cpp_wrappers.instrumented_graphs import CppWrapped, CppWrappers
from kernelscope.probes.cuda_graphs.captured_graphs import current_device, current_stream
from kernelscope.probes.dynamo.made_graphs import MadeGraphs
from kernelscope.probes.eager.unseen_operators import WATCH
from kernelscope.probes.origins import LineMap, caller_frames, compiled_user_code
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.patching import Patch, PatchSet

from .fx_wrappers import FxWrapped
from .hooked_wrapper import HookedWrapper, read_with_births
from .shaped_wrapper import ShapedWrapper
from .wrapper_launches import WrapperLaunches

_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"
_CPP_WRAPPER = "CppWrapperCodeCache.load_pybinding"
_OPTIMIZERS = os.path.join(os.path.dirname(torch.__file__), "optim", "")
_Wrapper = HookedWrapper | CppWrapped | FxWrapped
_WITH_CONTEXT = (CppWrapped, FxWrapped)  # what they launch is seen while they are `running`
_OF_GRAPH_CALL = ("graph_call", "execution", "plan", "in_graph", "backward", "launch", "wrapper")
_of_graph_call = itemgetter(*_OF_GRAPH_CALL)  # of a thread's state: what another graph call must not change
_Known = tuple[Any, Graph | None, _Wrapper | ShapedWrapper | None]  # a weak reference to it, and what it runs


class CompiledGraphs(PatchSet):
    """The probe for Inductor's compiled graphs."""

    def __init__(self, cpp_wrappers: CppWrappers) -> None:
        self._cpp_wrappers = cpp_wrappers
        self._made = MadeGraphs()
        super().__init__(Patch(_CALL, self.calling), *self._made.patches)
        # By id of the module's namespace, which the value keeps.
        self._hooked: dict[int, HookedWrapper | ShapedWrapper] = {}
        self._graphs: dict[int, _Known] = {}  # by id of the CompiledFxGraph
        self._step_graphs: set[int] = set()  # of a compiled optimizer, run since the last step
        # The user's, by Inductor's number of the graph.
        self._codes: dict[Any, tuple[CodeType | None, tuple[Frame, ...]]] = {}
        self._ids = itertools.count()
        self._is_on = False
        self._lock = threading.Lock()

    def install(self) -> None:
        super().install()
        self._is_on = True
        BUS.before_capture = self._hook_everything

    def remove(self) -> None:
        BUS.before_capture = None
        # First the code, then the patch: a graph that is entered in between runs as Inductor wrote it.
        with self._lock:
            self._is_on = False
            for wrapper in self._hooked.values():
                wrapper.restore()
            self._hooked.clear()
            self._graphs.clear()
            self._codes.clear()
            self._step_graphs.clear()
        self._made.forget()
        super().remove()

    def _hook_everything(self) -> None:
        """A CUDA graph is about to be captured, maybe inside a graph that has been entered already."""
        with self._lock:
            for wrapper in self._hooked.values():
                _follow(wrapper)

    def forget_lock(self) -> None:
        """In a forked child: the thread that held it is gone."""
        self._lock = threading.Lock()
        self._cpp_wrappers.forget_locks()

    def calling(self, original: Any) -> Any:
        """The function that calls a compiled graph as `original` does, and records the graph call."""
        here = BUS.here

        def call(compiled: Any, inputs: Any) -> Any:
            mine = here.__dict__  # looked up once: an attribute of a thread's own takes its time
            before = _of_graph_call(mine)
            if mine["muted"]:
                here.graph_call, here.wrapper = -1, None
                try:
                    return original(compiled, inputs)
                finally:
                    mine.update(zip(_OF_GRAPH_CALL, before, strict=True))
            try:
                graph, wrapper = self._enter(compiled, inputs)
            except Exception:
                BUS.finding(own_fault("entering a compiled graph, whose launches are not recorded"))
                graph = wrapper = None
            optimizes = wrapper is not None and wrapper.optimizes and not here.optimizer
            # Forward and backward that an optimizer calls as its closure are no part of its own work.
            outside = here.optimizer if graph is not None and graph.direction != "inference" else 0
            here.optimizer += optimizes - outside
            mine.update(
                graph_call=-1, execution=None, plan=None, wrapper=wrapper, in_graph=mine["in_graph"] + 1,
                backward=graph is not None and graph.direction == "backward",
            )  # fmt: skip
            broken_off = False
            try:
                if graph is not None and wrapper is not None:
                    self._begin(graph, wrapper, inputs)
                if isinstance(wrapper, _WITH_CONTEXT):
                    with wrapper.running():
                        result = original(compiled, inputs)
                else:
                    result = original(compiled, inputs)
                return result
            except BaseException as error:
                broken_off = True
                if wrapper is not None:
                    with contained("recording that a graph raised"):
                        BUS.note_failed(here.graph_call, wrapper.line_in(error), error)
                raise
            finally:
                ended, plan, execution = mine["graph_call"], mine["plan"], mine["execution"]
                mine.update(zip(_OF_GRAPH_CALL, before, strict=True))
                here.optimizer += outside - optimizes
                try:  # each on its own: the others follow where one of them fails
                    if plan is not None:
                        plan.ended(execution, broken_off=broken_off)
                except Exception:
                    BUS.finding(own_fault("ending a planned graph call"))
                try:
                    if graph is not None and optimizes and not broken_off:
                        self._count_step(graph)
                    if ended >= 0:
                        BUS.graph_call_ended(ended)
                except Exception:
                    BUS.finding(own_fault("recording the end of a graph call"))
                try:
                    if wrapper is not None:
                        self._leave(wrapper, ended)
                except Exception:
                    BUS.finding(own_fault("leaving a compiled graph"))

        return call

    @staticmethod
    def _begin(graph: Graph, wrapper: _Wrapper, inputs: Any) -> None:
        here = BUS.here
        try:
            stream = current_stream(current_device()) if wrapper.is_cuda else 0
            here.graph_call = BUS.graph_call(graph, BUS.phase(), stream, inputs)
            here.launch = None  # its caller is recorded with the graph call
        except Exception:
            BUS.finding(own_fault("recording a graph call"))

    def _enter(self, compiled: Any, inputs: Any) -> tuple[Graph | None, _Wrapper | None]:
        with self._lock:
            if not self._is_on:  # removed since this thread got hold of the method
                return None, None
            known = self._graphs.get(id(compiled))
            if known is None or known[0]() is not compiled:
                known = self._graphs[id(compiled)] = (weakref.ref(compiled), *self._try_to_hook(compiled))
            _, graph, shaped = known
            wrapper = unseen(shaped.of, inputs) if isinstance(shaped, ShapedWrapper) else shaped
            if wrapper is not None:
                if wrapper.settled is not BUS.wanted:
                    _follow(wrapper)
                    unseen(wrapper.look_at, inputs)
                BUS.executing += 1
            return graph, wrapper

    def _leave(self, wrapper: _Wrapper, graph_call: int) -> None:
        with self._lock:
            BUS.executing -= 1
            if wrapper.settled is BUS.wanted:
                return
            WATCH.compiled()  # its graph may have been compiled just before
            owner = wrapper.owner if isinstance(wrapper, HookedWrapper) else None
            if owner is not None and self._hooked.get(id(wrapper.namespace)) is owner:  # not an earlier one
                _follow(wrapper, graph_call)  # now, in the first execution, which is slow anyway

    def _count_step(self, graph: Graph) -> None:
        """A compiled optimizer step has no profiler range. It may be several graphs, each run once."""
        if not self._step_graphs or graph.id in self._step_graphs:
            self._step_graphs.clear()
            BUS.step()
        self._step_graphs.add(graph.id)

    def _try_to_hook(self, compiled: Any) -> tuple[Graph | None, _Wrapper | ShapedWrapper | None]:
        try:
            return self._hook(compiled)
        except Exception:
            BUS.finding(own_fault("hooking a compiled graph, whose launches are not recorded"))
            return None, None

    def _hook(self, compiled: Any) -> tuple[Graph | None, _Wrapper | ShapedWrapper | None]:
        if not hasattr(compiled, "source_code"):  # an FX graph instead of generated text
            fx = FxWrapped(optimizes=_is_optimizer(compiled), is_cuda="cuda" in compiled.device_types)
            return self._graph(compiled, ""), fx
        if _CPP_WRAPPER in compiled.source_code:
            return self._hook_cpp_wrapper(compiled)
        namespace = _namespace_of(compiled)
        if namespace is None:
            name = compiled._fx_graph_cache_key or "?"
            BUS.finding(
                Finding(
                    "unseen-graph",
                    f"a compiled graph (cache key {name}) has no Python wrapper, so its launches are not "
                    "recorded",
                )
            )
            return None, None
        path = str(namespace.get("__file__", "<wrapper>"))
        wrapper = self._hooked.get(id(namespace)) or self._hook_wrapper(compiled, namespace, path)
        return self._graph(compiled, wrapper.aot_name, path), wrapper

    def _graph(self, compiled: Any, name: str, path: str = "") -> Graph:
        return Graph(
            id=next(self._ids),
            direction=direction_of(compiled),
            name=name,
            compile_id=self._made.compile_id(compiled),
            cache_key=compiled._fx_graph_cache_key or "",
            source=getattr(compiled, "source_code", ""),
            path=path,
        )

    def _hook_cpp_wrapper(self, compiled: Any) -> tuple[Graph, CppWrapped]:
        wrapper = CppWrapped(
            self._cpp_wrappers,
            optimizes=_is_optimizer(compiled),
            is_cuda="cuda" in compiled.device_types,
            origin=self._called_from(compiled)[1],
        )
        number = compiled.fx_kwargs.get("graph_id")
        name = f"{number}_{direction_of(compiled)}" if number is not None else ""
        return self._graph(compiled, name), wrapper

    def _hook_wrapper(
        self, compiled: Any, namespace: dict[str, Any], path: str
    ) -> HookedWrapper | ShapedWrapper:
        text, codes = read_with_births(compiled.source_code, namespace)
        code, callers = self._called_from(compiled)
        lines, optimizes = LineMap(self._made.linemap(compiled), code), _is_optimizer(compiled)
        is_cuda = "cuda" in compiled.device_types

        def launches(sizes: frozenset[str]) -> WrapperLaunches:
            return WrapperLaunches(text, path, namespace, lines, callers, sizes=sizes)

        def wrapper(made: WrapperLaunches) -> HookedWrapper:
            return HookedWrapper(namespace, text, codes, made, optimizes=optimizes, is_cuda=is_cuda)

        hooked: HookedWrapper | ShapedWrapper
        if text.is_static:
            hooked = wrapper(launches(frozenset()))
            hooked.hook()
        else:
            hooked = ShapedWrapper(namespace, text, launches, wrapper)
        self._hooked[id(namespace)] = hooked
        return hooked

    def _called_from(self, compiled: Any) -> tuple[CodeType | None, tuple[Frame, ...]]:
        """What was compiled, and its callers; those of a backward graph are its forward graph's."""
        number = compiled.fx_kwargs.get("graph_id")
        if direction_of(compiled) != "backward":
            self._codes[number] = compiled_user_code(), caller_frames(limit=100)
        return self._codes.get(number) or (None, caller_frames(limit=100))


def _is_optimizer(compiled: Any) -> bool:
    return any(_OPTIMIZERS in (trace or "") for _, trace in compiled.cache_linemap or [])


def _follow(wrapper: _Wrapper | ShapedWrapper, ended: int = -1) -> None:
    try:
        unseen(wrapper.follow, ended)
    except Exception:
        BUS.finding(own_fault("changing the code of a wrapper"))


def _namespace_of(compiled: Any) -> dict[str, Any] | None:
    """The globals of the wrapper module that a compiled graph runs."""
    runner = getattr(compiled, "compiled_fn_runner", None)  # also there when CUDA graphs wrap the callable
    function = getattr(type(runner), "call", None) if runner is not None else None
    if function is None:
        function = getattr(compiled.current_callable, "__func__", compiled.current_callable)
    namespace = getattr(function, "__globals__", None)
    return namespace if namespace is not None and "async_compile" in compiled.source_code else None


def direction_of(compiled: Any) -> Direction:
    kwargs = compiled.fx_kwargs
    compiled_autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    # Compiled autograd compiles a whole backward as if it were an inference.
    if kwargs.get("is_backward") or getattr(compiled_autograd, "in_compiled_autograd_region", False):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"
