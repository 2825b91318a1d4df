"""The one way from probes to recordings: what a launch is, and who hears of it.

Probes are installed once per process and emit here; each open recording listens. What is a fact of the
process (storages, the current graph, autotuning going on) is kept here; what a recording wants to know
about it is the recording's own.
"""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from ..events import Arg, Finding, Graph, GraphCall, Kernel, Phase, Site
from .describe import describe, returned_tensors
from .storages import Storage, Storages


class LaunchPoint:
    """A site as a probe knows it: what a launch there needs in order to be recorded quickly."""

    __slots__ = ("is_leaf", "is_static", "returns", "scalars", "seal", "sealed", "site", "tensors", "written")

    def __init__(
        self,
        site: Site,
        *,
        is_static: bool = True,
        is_leaf: bool = False,
        returns: bool = False,
        seal: Callable[[Site, Launch], Site] | None = None,
    ) -> None:
        self.site = site
        self.is_static = is_static  # every call here has the same shapes, also of what it returns
        self.is_leaf = is_leaf  # what it runs inside is part of it (not so for a custom operator)
        self.returns = returns  # its outputs are new tensors, known only afterwards
        self.seal = seal  # completes the site after its first launch (an autotuned config)
        self.sealed: dict[tuple[Arg, ...], Site] = {}  # by what was returned
        self.tensors = tuple(
            i for i, a in enumerate(site.args) if a.tensor is not None and not a.tensor.unread
        )
        self.written = frozenset(i for i in self.tensors if site.args[i].role in ("out", "inout"))
        self.scalars = tuple(i for i, a in enumerate(site.args) if a.tensor is None and a.value is None)


class Launch:
    """One launch while it happens: its point, and the live arguments."""

    __slots__ = (
        "args", "calls", "captured", "dead", "error", "flat", "func", "graph_call", "kwargs", "outer",
        "phase", "point", "result", "returned", "site", "start_ns", "storages", "stream",
    )  # fmt: skip

    point: LaunchPoint
    site: Site  # the point's, completed once the launch is over
    flat: Any  # argument values in the order of the site's args
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    storages: list[Storage]  # of the point's tensors, in their order
    dead: tuple[int, ...]  # written arguments whose prior contents were uninitialised
    result: Any
    returned: list[torch.Tensor]
    stream: int
    phase: Phase
    graph_call: int
    start_ns: int
    captured: bool
    outer: Launch | None  # the launch that this one happens inside of
    error: BaseException | None
    calls: dict[Listener, Any]  # what each recording made of it


class Listener(Protocol):
    """What a recording is to the bus."""

    def before(self, launch: Launch) -> Any: ...
    def after(self, launch: Launch, call: Any) -> None: ...
    def graph_call(self, graph_call: GraphCall) -> None: ...
    def mark(self, kind: str, text: str) -> None: ...
    def finding(self, finding: Finding) -> None: ...
    def step(self) -> None: ...


class _ThreadState(threading.local):
    muted = 0  # the recorder's own work, autotuning, compilation
    graph_call = -1
    in_graph = 0
    backward = False
    optimizer = 0
    launch: Launch | None = None


class Bus:
    """Fans what probes see out to the open recordings."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.storages = Storages()
        self.here = _ThreadState()
        self._graph_calls = itertools.count()
        self.site_ids = itertools.count()
        self._kernels: dict[tuple[str, str, str], Kernel] = {}

    def attach(self, listener: Listener) -> None:
        self.listeners = (*self.listeners, listener)

    def detach(self, listener: Listener) -> None:
        self.listeners = tuple(each for each in self.listeners if each is not listener)
        if not self.listeners:
            self.storages.clear()

    def forget(self) -> None:
        """In a forked child: nobody listens, and the weak references are its own copies."""
        self.listeners = ()
        self.here = _ThreadState()
        self.storages = Storages()

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Nothing that happens inside, on this thread, is the program's own."""
        self.here.muted += 1
        try:
            yield
        finally:
            self.here.muted -= 1

    def kernel(self, name: str, kind: str, producer: str, source: str = "", source_hash: str = "") -> Kernel:
        key = (name, kind, source_hash)
        if key not in self._kernels:
            self._kernels[key] = Kernel(len(self._kernels), name, kind, producer, source, source_hash)
        return self._kernels[key]

    def graph_call(self, graph: Graph) -> int:
        """A compiled graph starts to execute."""
        index = next(self._graph_calls)
        for listener in self.listeners:
            listener.graph_call(GraphCall(index, graph))
        return index

    def finding(self, finding: Finding) -> None:
        for listener in self.listeners:
            listener.finding(finding)

    def mark(self, kind: str, text: str) -> None:
        for listener in self.listeners:
            listener.mark(kind, text)

    def step(self) -> None:
        for listener in self.listeners:
            listener.step()

    def phase(self) -> Phase:
        here = self.here
        if here.optimizer:
            return "optimizer"
        if here.in_graph:
            return "backward" if here.backward else "forward"
        if torch._C._current_autograd_node() is not None:
            return "backward"
        return "forward" if torch.is_grad_enabled() else "other"

    def run(
        self,
        point: LaunchPoint,
        flat: Any,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Launch, and let every recording see it before and after."""
        here = self.here
        launch = self._begin(point, flat, func, args, kwargs)
        here.launch = launch
        here.muted += point.is_leaf
        try:
            launch.result = func(*args, **kwargs)
        except BaseException as error:
            launch.error = error
            raise
        finally:
            here.muted -= point.is_leaf
            here.launch = launch.outer
            self._end(launch)
        return launch.result

    def _begin(self, point: LaunchPoint, flat: Any, func: Any, args: Any, kwargs: Any) -> Launch:
        launch = Launch()
        launch.point, launch.flat, launch.func, launch.args, launch.kwargs = point, flat, func, args, kwargs
        launch.site = point.site
        launch.result, launch.error, launch.returned = None, None, []
        launch.outer = self.here.launch
        launch.graph_call = self.here.graph_call
        launch.phase = self.phase()
        launch.start_ns = time.monotonic_ns()
        launch.stream, launch.captured = _stream(point.site.device, kwargs)
        storages = self.storages
        launch.storages = [storages.of(flat[i]) for i in point.tensors]
        launch.dead = tuple(
            i
            for i, storage in zip(point.tensors, launch.storages, strict=True)
            if storage.unwritten and i in point.written and not storages.is_live(flat[i], storage)
        )
        launch.calls = {}
        for listener in self.listeners:
            try:
                launch.calls[listener] = listener.before(launch)
            except Exception:
                listener.finding(own_fault(f"recording {point.site.kernel.name}"))
        return launch

    def _end(self, launch: Launch) -> None:
        try:
            self._complete(launch)
        except Exception:
            self.finding(own_fault(f"completing {launch.site.kernel.name}"))
        for listener, call in launch.calls.items():
            if call is None:
                continue
            try:
                listener.after(launch, call)
            except Exception:
                listener.finding(own_fault(f"recording {launch.site.kernel.name}"))

    def _complete(self, launch: Launch) -> None:
        point = launch.point
        for i, storage in zip(point.tensors, launch.storages, strict=True):
            if i in point.written:
                self.storages.wrote(launch.flat[i], storage)
        if launch.error is not None:
            return
        if point.seal is not None:
            point.site = point.seal(point.site, launch)
            point.seal = None
        launch.site = self._with_returns(launch) if point.returns else point.site

    def _with_returns(self, launch: Launch) -> Site:
        point = launch.point
        given = {id(value) for value in launch.flat}
        launch.returned = [t for t in returned_tensors(launch.result) if id(t) not in given]
        for tensor in launch.returned:
            storage = self.storages.of(tensor)
            storage.epoch += 1
            launch.storages.append(storage)
        if point.is_static and point.sealed:
            return next(iter(point.sealed.values()))
        single = len(launch.returned) == 1
        returns = tuple(
            Arg("result" if single else f"result{i}", "out", describe(t), returned=True)
            for i, t in enumerate(launch.returned)
        )
        if returns not in point.sealed:
            point.sealed[returns] = point.site.with_returns(next(self.site_ids), returns)
        return point.sealed[returns]


def _stream(device: str, kwargs: dict[str, Any]) -> tuple[int, bool]:
    if not device.startswith("cuda"):
        return 0, False
    stream = kwargs.get("stream")
    if not isinstance(stream, int):
        stream = torch._C._cuda_getCurrentRawStream(int(device.partition(":")[2] or 0))
    return stream, torch._C._cuda_isCurrentStreamCapturing()


def own_fault(where: str) -> Finding:
    """The recorder's own mistake: said, but never the user's problem."""
    trace = traceback.format_exc(limit=-3).strip()
    return Finding("recorder-error", f"kernelscope failed while {where}; the program went on.\n{trace}")


BUS = Bus()
