"""Graphs of the gcu backend: their kernels, and the operators that they leave to ATen.

A graph of that backend is an object whose steps are objects: hooking three methods of their classes sees
every launch, also of graphs compiled before the recording.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from types import FrameType
from typing import Any

import torch

from kernelscope.events import Arg, Direction, Frame, Graph, Site
from kernelscope.probes import operators
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.describe import describe, flatten
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.origins import LineMap, caller_frames, is_users
from kernelscope.probes.own_work import own_fault, unseen
from kernelscope.probes.patching import Patch, PatchSet

_EXECUTOR = "kernelscope.gcu.execution.executor"


def variables() -> dict[str, Any]:
    """What the graph that is running on this thread has at this moment, by name."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        step: Any = frame.f_locals.get("self")
        if frame.f_globals.get("__name__") == _EXECUTOR and getattr(step, "graph", None) is not None:
            return dict(zip(step.graph.names, frame.f_locals["registers"], strict=True))
        frame = frame.f_back
    return {}


class GcuGraphs(PatchSet):
    """The probe for graphs compiled with `backend="gcu"`."""

    def __init__(self) -> None:
        super().__init__(
            Patch(f"{_EXECUTOR}:CompiledGraph.__call__", self._around_graph),
            Patch(f"{_EXECUTOR}:Launch.run", self._around_launch),
            Patch(f"{_EXECUTOR}:AtenCall.run", self._around_aten),
        )
        self._points: dict[Any, LaunchPoint] = {}
        self._graphs: dict[int, tuple[Any, Graph]] = {}
        self._callers: dict[int, tuple[Frame, ...]] = {}
        self._ids = itertools.count(1_000_000)  # apart from Inductor's

    def remove(self) -> None:
        super().remove()
        self._points.clear()
        self._graphs.clear()
        self._callers.clear()

    def _around_graph(self, original: Any) -> Any:
        here = BUS.here

        def call(compiled: Any, args: Any) -> Any:
            if here.muted or not BUS.listeners:
                return original(compiled, args)
            before = here.graph_call, here.in_graph, here.backward
            here.in_graph += 1
            here.backward = compiled.direction == "backward"
            with contained("recording a graph call"):
                here.graph_call = BUS.graph_call(self._graph(compiled), BUS.phase(), 0, args)
                self._callers.setdefault(id(compiled), caller_frames(limit=100))
            try:
                return original(compiled, args)
            finally:
                here.graph_call, here.in_graph, here.backward = before

        return call

    def _graph(self, compiled: Any) -> Graph:
        known = self._graphs.get(id(compiled))
        if known is None or known[0]() is not compiled:
            from kernelscope.gcu.execution.graph_code import code_of

            direction: Direction = compiled.direction
            graph = Graph(
                next(self._ids), direction, compiled.name, compiled.compile_id, compiled.name,
                code_of(compiled).text, compiled.path,
            )  # fmt: skip
            known = self._graphs[id(compiled)] = weakref.ref(compiled), graph
        return known[1]

    def _around_launch(self, original: Any) -> Any:
        here = BUS.here

        def run(launch: Any, tensors: Any, symbols: tuple[int, ...]) -> Any:
            if here.muted or not BUS.listeners:
                return original(launch, tensors, symbols)
            try:
                point = unseen(self._kernel_point, launch, tensors)
            except Exception:
                BUS.finding(own_fault(f"describing {launch.kernel.name}"))
                return original(launch, tensors, symbols)
            return BUS.run(point, tensors, original, (launch, tensors, symbols), {})

        return run

    def _kernel_point(self, launch: Any, tensors: Any) -> LaunchPoint:
        made = len(launch.inputs)
        for tensor in tensors[made:]:
            BUS.storages.born(tensor)
        key = (id(launch), *((t.shape, t.stride()) for t in tensors))
        if key not in self._points:
            kernel = launch.kernel
            names = launch.arg_names
            buffers = [*kernel.inputs, *kernel.outputs]
            args = tuple(
                Arg(names[i], "in" if i < made else "out", describe(t), buffers[i])
                for i, t in enumerate(tensors)
            )
            known = BUS.kernel(kernel.name, "gcu", "gcu", launch.source)
            config = {"nodes": list(kernel.nodes)}
            site = self._site(launch, known, args, config)
            self._points[key] = LaunchPoint(site, is_leaf=True)
        return self._points[key]

    def _site(self, step: Any, kernel: Any, args: tuple[Arg, ...], config: dict[str, Any]) -> Site:
        origin = LineMap([(1, step.origin)]).frames(1) if step.origin else ()
        if not origin or not is_users(origin[0].file):
            origin = self._callers.get(id(step.graph), ()) + origin
        from kernelscope.gcu.execution.graph_code import line_of

        path, line = step.graph.path, line_of(step)
        return BUS.site(kernel, args, origin, file=path, line=line, config=config)

    def _around_aten(self, original: Any) -> Any:
        here = BUS.here

        def run(call: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            view = call.is_view or not isinstance(call.target, torch._ops.OpOverload)
            if here.muted or not BUS.listeners or view or operators.is_view(call.target):
                return original(call, args, kwargs)
            try:
                flat, point = unseen(self._aten_point, call, args, kwargs)
            except Exception:
                BUS.finding(own_fault(f"describing {call.target}"))
                return original(call, args, kwargs)
            return BUS.run(point, flat, lambda *a, **k: original(call, a, k), args, kwargs)

        return run

    def _aten_point(self, call: Any, args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], LaunchPoint]:
        flat = flatten(args, kwargs)
        key = (
            id(call),
            *((t.shape, t.stride()) if isinstance(t, torch.Tensor) else repr(t) for t in flat),
        )
        if key not in self._points:
            given = flatten(call.args, call.kwargs)
            named = [call.graph.names[call.places[n]] if isinstance(n, torch.fx.Node) else "" for n in given]
            _, described = operators.operator_args(call.target, args, kwargs, lambda i: True, named)
            kernel = BUS.kernel(operators.operator_name(call.target), "extern", "gcu")
            site, is_leaf = self._site(call, kernel, described, {}), call.target.namespace == "aten"
            self._points[key] = operators.operator_point(
                site, call.target, is_leaf=is_leaf, is_opaque=not is_leaf
            )
        return flat, self._points[key]
